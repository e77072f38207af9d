"""The errors a user sees as one line."""

from __future__ import annotations


class ConfigurationError(SystemExit, ValueError):
    """A setting that cannot work: what was given, what is allowed, what to change.

    It is a ``ValueError`` for code that calls us and a ``SystemExit`` for the command line: fairseq
    has no place that turns an exception into a message, and a researcher who mistyped a flag
    should read one line, not a traceback through the host.
    """
