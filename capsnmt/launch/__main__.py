"""``capsnmt-run``: print, submit or execute the runs of a launch."""

from __future__ import annotations

import sys
from typing import Optional, Sequence

from capsnmt.cli import quiet, require, run_command
from capsnmt.launch.options import parse
from capsnmt.process import stoppable


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the launcher and return its status, as :func:`capsnmt.cli.run_command`."""
    words = sys.argv[1:] if argv is None else argv

    def command() -> None:
        options = parse(words)
        require("fairseq")
        with quiet(), stoppable():
            # Importing torch and fairseq takes seconds; --help and a bad flag do not need them.
            from capsnmt.launch.dispatch import dispatch

            dispatch(options)

    return run_command(command, "stopped: the same command resumes")


if __name__ == "__main__":
    sys.exit(main())
