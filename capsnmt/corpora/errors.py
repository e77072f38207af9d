"""What a user of data preparation sees as one line."""

from __future__ import annotations


class PreparationError(Exception):
    """Bad input: names the value, what is allowed and the fix."""
