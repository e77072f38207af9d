"""A filter for the messages of a catalogue: which are useful sentence pairs."""

from __future__ import annotations

import re

# Text that programs fill in or interpret; it is not language and its translation often differs.
PLACEHOLDER = re.compile(
    r"%\(\w+\)|%[-#0+ ]?\d*\.?\d*[diouxXeEfFgGcrsa%](?![a-z])"  # %(name)s, %s, %5.2f, %%
    r"|\{|\}"  # {name}, {{ name }}, ${name}
    r"|\$\w"  # $name
)
MARKUP = re.compile(
    r"<[^>]*>|&#?\w+;"  # tags, entities
    r"|&\w|\b_\w|\w_\w"  # &Open, _Open: keyboard shortcuts; identifiers
    r"|[`|\\]|\*\w|\w\*|\[\[|==|::|--\w"  # reStructuredText, wiki, escapes, options
)
ADDRESS = re.compile(
    r"https?:|www\.|\w@\w|\w/\w+/|\w\.(?:com|org|net|html?|py|po)\b", re.IGNORECASE
)
MAX_LENGTH = 400  # characters
MIN_LETTERS = 0.6  # share of all characters except spaces


def one_line(text: str) -> str:
    """Replace every run of white space by one space."""
    return " ".join(text.split())


def _letters(text: str) -> float:
    solid = [character for character in text if not character.isspace()]
    # Combining marks are parts of letters, as in decomposed Vietnamese.
    good = sum(character.isalpha() or "\u0300" <= character <= "\u036f" for character in solid)
    return good / max(1, len(solid))


def fault(english: str, translation: str, max_ratio: float) -> str | None:
    """Return the reason to drop a pair, or None.

    Args:
        english: the message, on one line.
        translation: its translation, on one line.
        max_ratio: maximal ratio of the two lengths in characters; above it the meanings differ.
            Messages of a few characters are exempt.
    """
    both = english, translation
    lengths = len(english), len(translation)
    rules = {
        "untranslated": not english or not translation,
        "equal": english.casefold() == translation.casefold(),
        "placeholder": any(PLACEHOLDER.search(text) for text in both),
        "markup": any(MARKUP.search(text) for text in both),
        "address": any(ADDRESS.search(text) for text in both),
        "not letters": any(_letters(text) < MIN_LETTERS for text in both),
        "length": max(lengths) > MAX_LENGTH,
        "ratio": max(lengths) > 10 and max(lengths) > max_ratio * max(1, min(lengths)),
    }
    return next((name for name, broken in rules.items() if broken), None)
