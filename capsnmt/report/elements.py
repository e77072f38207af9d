"""The elements of a report, independent of its format: text, tables, figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Mapping, Sequence, Union


@dataclass(frozen=True)
class Code:
    """A name or value in a fixed-width font."""

    text: str


@dataclass(frozen=True)
class Strong:
    """Emphasised words."""

    text: str


@dataclass(frozen=True)
class Link:
    """A link to another file.

    Attributes:
        text: what is shown.
        target: the file, relative to the page.
    """

    text: str
    target: str


@dataclass(frozen=True)
class Aside:
    """A remark in place of content, such as "(empty)"."""

    text: str


@dataclass(frozen=True)
class Mark:
    """A dagger after a number, and what it means."""

    text: str
    meaning: str


Inline = Union[str, Code, Strong, Link, Aside, Mark]
# one piece of text, or several that follow one another without a space
Text = Union[Inline, Sequence[Inline]]


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: Text


@dataclass(frozen=True)
class Listing:
    """An unordered list."""

    items: Sequence[Text]


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading.

    Attributes:
        caption: what the table shows; Markdown has no captions and omits it.
        header: heading of each column.
        rows: cells of each row.
        numeric: number of the first column to align right; 0 for none.
        folded: label where it can be folded; empty for a table that is always open.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Text]]
    numeric: int = 0
    folded: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        name: name of its file, without an extension.
        alt: description for readers who do not see it.
        caption: text below it.
    """

    name: str
    alt: str
    caption: Text


@dataclass(frozen=True)
class Preformatted:
    """A block of code.

    Attributes:
        content: the code.
        language: name of its language, for Markdown.
        folded: label where it can be folded; empty for a block that is always open.
    """

    content: str
    language: str = ""
    folded: str = ""


@dataclass(frozen=True)
class Translations:
    """One sentence: its number in the test set (from 0), its texts, one translation per system."""

    number: int
    source: str
    reference: str
    translations: Sequence[str]


@dataclass(frozen=True)
class Samples:
    """Sentences with the translations of every system.

    Attributes:
        languages: source and target language.
        names: names of the systems.
        sentences: the sentences.
    """

    languages: Sequence[str]
    names: Sequence[str]
    sentences: Sequence[Translations]


Element = Union[Heading, Paragraph, Listing, Table, Figure, Preformatted, Samples]


@dataclass(frozen=True)
class Report:
    """A report: the elements before the first heading, and sections by their headings."""

    title: str
    summary: Sequence[Element]
    sections: Mapping[str, Sequence[Element]] = field(default_factory=dict)


def pieces(text: Text) -> List[Inline]:
    """Return the pieces of a text.

    >>> pieces("a"), pieces(["a", Code("b")])
    (['a'], ['a', Code(text='b')])
    """
    return [text] if isinstance(text, (str, Code, Strong, Link, Aside, Mark)) else list(text)
