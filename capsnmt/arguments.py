"""What the command lines of our own commands share."""

from __future__ import annotations

import argparse
from typing import NoReturn

from capsnmt.errors import ConfigurationError


class OneLineParser(argparse.ArgumentParser):
    """A parser that tells a bad flag in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        """Raise the message as a ``ConfigurationError``."""
        raise ConfigurationError(f"{message} (--help lists the flags)")


def positive(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
