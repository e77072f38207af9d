"""The command line of the launcher: flags, one-line errors, exit statuses."""

from __future__ import annotations

import os
import sys
from typing import Optional, Sequence

from capsnmt.cli import (
    BAD_SETTING,
    FAILED,
    INTERRUPTED,
    ConfigurationError,
    ExecutionError,
    describe,
    not_installed,
    quiet,
    require,
)
from capsnmt.launch.arguments import parse
from capsnmt.process import Stopped, stoppable


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the launcher.

    Returns:
        0; 1 if a stage or the file system failed; 2 for a bad setting; 128 + n after signal n; 141
        if the reader of the output has closed it.
    """
    return _main(sys.argv[1:] if argv is None else argv)


def _main(argv: Sequence[str]) -> int:
    requeues = False
    try:
        options = parse(argv)
        requeues = options.requeue
        with quiet(), stoppable():
            # Importing torch and fairseq takes seconds; --help and a bad flag do not need them.
            require("fairseq")
            try:
                from capsnmt.launch.launch import launch

                launch(options, argv)
            except ImportError as error:
                raise not_installed(error) from None
    except ConfigurationError as error:
        return _end(f"error: {error}", BAD_SETTING)
    except ExecutionError as error:
        return _end(f"error: {error}", FAILED)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        return _end(f"error: {describe(error)}", FAILED)
    except Stopped as error:
        return _stopped(error, requeues)
    except KeyboardInterrupt:
        return _end("stopped: the same command resumes", INTERRUPTED)
    return 0


def _stopped(stopped: Stopped, requeues: bool) -> int:
    def report(outcome: str) -> int:
        return _end(f"{stopped}: {outcome}", stopped.status)

    if not requeues:
        return report("the same command resumes")
    from capsnmt.launch import slurm

    slurm.requeue(os.environ, report)
    return stopped.status


def _end(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status
