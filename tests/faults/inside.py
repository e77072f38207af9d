"""``python -m tests.faults.inside FOLDER CLOSED MODULE ARGUMENTS``: a command in a folder, bounded.

A fault that takes all memory or never ends must end the command and not the machine. ``CLOSED`` is
the number of a standard stream that is closed, as by ``<&-``, or empty.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from tests import forked

SECONDS = 90  # of one core
MORE_BYTES = 3 << 30  # than the libraries that the command's process starts with


def main() -> None:
    """Run the command."""
    folder, closed, module, *arguments = sys.argv[1:]
    size = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (size + MORE_BYTES, size + MORE_BYTES))
    os.chdir(folder)
    # a fork has the path of the process that it comes from
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    if closed:
        os.close(int(closed))
        # what an interpreter does that starts without the stream
        setattr(sys, ("stdin", "stdout", "stderr")[int(closed)], None)
    sys.argv = [module, *arguments]
    forked.execute(module)


if __name__ == "__main__":
    main()
