"""What our commands share: the parser, argument types, errors of one line and exit statuses."""

from __future__ import annotations

import argparse
import sys
from typing import Callable, NoReturn

from capsnmt.errors import ConfigurationError, ExecutionError

FAILED = 1
BAD_SETTING = 2
INTERRUPTED = 130


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a bad flag in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise the message as a ``ConfigurationError``."""
        raise ConfigurationError(f"{message} (--help lists the flags)")


def positive(text: str) -> int:
    """Parse a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: it is not one.
    """
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")


def run_command(command: Callable[[], None], interrupted: str = "interrupted") -> int:
    """Run the body of a command, print its error as one line, and return the exit status.

    Args:
        command: the body.
        interrupted: what to print after Ctrl-C.

    Returns:
        0; 1 if a download, another program or the file system failed; 2 for a bad setting; 130
        after Ctrl-C.
    """
    try:
        command()
    except ConfigurationError as error:
        return _fail(str(error), BAD_SETTING)
    except ExecutionError as error:
        return _fail(str(error), FAILED)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}", FAILED)
    except KeyboardInterrupt:
        return _fail(interrupted, INTERRUPTED)
    return 0


def _fail(message: str, status: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status
