"""The errors that a user sees as one line."""

from __future__ import annotations

import importlib.util
from typing import Any

# What each extra installs and our code imports; of a library in several, the first extra is named.
EXTRAS = {
    "fairseq": ("fairseq", "fairseq_cli", "numpy", "omegaconf"),
    "evaluation": ("numpy", "sacrebleu", "sacremoses", "scipy"),
    "data": (
        *("jieba", "numpy", "polib", "pooch", "requests", "sacremoses", "sentencepiece"),
        *("subword_nmt", "tqdm"),
    ),
    "report": (
        *("jinja2", "markupsafe", "matplotlib", "numpy", "sacrebleu", "sacremoses", "scipy"),
        *("sklearn", "tqdm"),
    ),
}
SHOWN = 200  # characters of a value that an error shows


class ConfigurationError(SystemExit, ValueError):
    """A setting or an input that cannot work; the message names it, what is allowed and the fix.

    It is a ``ValueError`` for library code and a ``SystemExit`` for the command line: fairseq has
    no place that turns an exception into a message, and a mistyped flag deserves one line, not a
    traceback through the host. Our own commands exit with status 2.
    """


class ExecutionError(Exception):
    """A download or another program failed although the settings are valid: exit status 1."""


def not_installed(error: ImportError) -> ConfigurationError:
    """Return the error that a library of an extra is missing.

    Args:
        error: what importing it raised.

    Raises:
        ImportError: ``error``, if it has another cause or no extra installs the library.
    """
    library = (error.name or "").partition(".")[0]
    extras = [name for name, libraries in EXTRAS.items() if library in libraries]
    missing = isinstance(error, ModuleNotFoundError) or not _is_installed(library)
    if not extras or not missing:
        raise error
    return _missing(error.name or "", extras[0])


def require(*extras: str) -> None:
    """Raise unless extras are installed: a missing library would end a command after hours.

    Raises:
        ConfigurationError: naming a library and its extra.
    """
    for extra in extras:
        for library in EXTRAS[extra]:
            if not _is_installed(library):
                raise _missing(library, extra)


def _missing(library: str, extra: str) -> ConfigurationError:
    return ConfigurationError(f"{library} is not installed: pip install 'capsnmt[{extra}]'")


def _is_installed(library: str) -> bool:
    return bool(library) and importlib.util.find_spec(library) is not None


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
