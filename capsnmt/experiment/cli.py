"""The command line of the launcher: flags, errors of one line, exit statuses."""

from __future__ import annotations

import logging
import os
import sys
from typing import Optional, Sequence

from capsnmt.arguments import BAD_SETTING, FAILED, INTERRUPTED
from capsnmt.errors import ConfigurationError, ExecutionError
from capsnmt.experiment.arguments import parser
from capsnmt.experiment.process import Stopped, stoppable


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the launcher.

    Returns:
        0; 1 if a stage failed; 2 for a bad setting; 128 + n after signal n.
    """
    argv = sys.argv[1:] if argv is None else argv
    requeues = False
    try:
        args = parser().parse_args(argv)
        requeues = args.requeue
        # fairseq reports INFO while it is only asked for its flags.
        logging.disable(logging.INFO)
        with stoppable():
            # Importing torch and fairseq takes seconds, which --help and a bad flag need not wait.
            from capsnmt.experiment.launch import launch

            launch(args, argv)
    except ConfigurationError as error:
        return _end(f"error: {error}", BAD_SETTING)
    except ExecutionError as error:
        return _end(f"error: {error}", FAILED)
    except Stopped as error:
        return _stopped(error, requeues)
    except KeyboardInterrupt:
        return _end("stopped: the same command resumes", INTERRUPTED)
    return 0


def _stopped(stopped: Stopped, requeues: bool) -> int:
    def report(then: str) -> int:
        return _end(f"{stopped}: {then}", stopped.status)

    if not requeues:
        return report("the same command resumes")
    from capsnmt.experiment import slurm

    slurm.requeue(os.environ, report)
    return stopped.status


def _end(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status
