"""The parser, argument types, one-line errors and exit statuses of all commands."""

from __future__ import annotations

import argparse
import sys
from typing import Callable, Collection, List, NoReturn

from capsnmt.errors import ConfigurationError, ExecutionError

FAILED = 1
BAD_SETTING = 2
INTERRUPTED = 130


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a bad flag in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise the message as a ``ConfigurationError``."""
        raise ConfigurationError(f"{message} (--help lists the flags)")


def at_least(minimum: int) -> Callable[[str], int]:
    """Return the type of a flag that takes a whole number, ``minimum`` or more."""

    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and int(text) >= minimum:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {minimum}")

    return parse


positive = at_least(1)


def comma_list(allowed: Collection[str] = (), fix: str = "") -> Callable[[str], List[str]]:
    """Return the type of a flag that takes different names, separated by commas.

    >>> comma_list(["train", "valid"])("valid, train")
    ['valid', 'train']

    Args:
        allowed: the allowed names; empty for any.
        fix: what else to do about another name.
    """

    def parse(text: str) -> List[str]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if allowed and name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r}: choose from {', '.join(allowed)}{fix}")
        if not all(names) or len(set(names)) < len(names):
            raise argparse.ArgumentTypeError(f"{text!r}: give different names, separated by commas")
        return names

    return parse


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
