"""The errors that a user sees as one line."""

from __future__ import annotations

from typing import Any

SHOWN = 200  # characters of a value that an error shows


class ConfigurationError(SystemExit, ValueError):
    """A setting or an input that cannot work; the message names it, what is allowed and the fix.

    It is a ``ValueError`` for library code and a ``SystemExit`` for the command line: fairseq has
    no place that turns an exception into a message, and a mistyped flag deserves one line, not a
    traceback through the host. Our own commands exit with status 2.
    """


class ExecutionError(Exception):
    """A download or another program failed although the settings are valid: exit status 1."""


def not_installed(error: ImportError, extra: str) -> ConfigurationError:
    """Return the error that a library is missing.

    Args:
        error: what importing it raised.
        extra: the extra of capsnmt that installs it.
    """
    return ConfigurationError(f"{error.name} is not installed: pip install 'capsnmt[{extra}]'")


def check_line(text: str, where: str) -> None:
    """Raise unless a text is one line; in a script, what follows would be a command of its own.

    Raises:
        ConfigurationError: naming ``where`` it is given.
    """
    if any(end in text for end in "\0\r\n"):
        raise ConfigurationError(
            f"{where}: {shown(text)} has a line end: give printable characters in one line"
        )


def shown(value: Any) -> str:
    """Return a value as an error shows it: its beginning, in one line.

    >>> shown("a\\nb"), shown("x" * 1000)[-7:]
    ("'a\\\\nb'", 'xxxx...')
    """
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
