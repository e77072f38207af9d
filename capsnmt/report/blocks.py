"""What a report is made of, in Markdown as in HTML: blocks of text, tables, pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Mapping, Sequence, Union


@dataclass(frozen=True)
class Code:
    """A name or value to be shown letter by letter."""

    text: str


@dataclass(frozen=True)
class Strong:
    """Words that must not be overlooked."""

    text: str


@dataclass(frozen=True)
class Aside:
    """Words of ours in place of content, such as "(empty)"."""

    text: str


@dataclass(frozen=True)
class Mark:
    """A dagger behind a number, and what it means."""

    text: str
    meaning: str


Inline = Union[str, Code, Strong, Aside, Mark]
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
    """A list without order."""

    items: Sequence[Text]


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading.

    Attributes:
        caption: what it shows; in Markdown, which has no captions, the heading before it tells.
        numeric: the columns from this number on are numbers, and stand to the right; 0 for none.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Text]]
    numeric: int = 0


@dataclass(frozen=True)
class Figure:
    """A picture.

    Attributes:
        name: of its file, without an extension.
        alt: what a reader who does not see it should know.
        caption: below it.
    """

    name: str
    alt: str
    caption: Text


@dataclass(frozen=True)
class Preformatted:
    """A block of code in a language.

    Attributes:
        folded: what it is called where it can be folded away; it is open where this is empty.
    """

    content: str
    language: str = ""
    folded: str = ""


@dataclass(frozen=True)
class Translations:
    """One sentence: its number in the test set (from 0), its texts, one translation a system."""

    number: int
    source: str
    reference: str
    translations: Sequence[str]


@dataclass(frozen=True)
class Samples:
    """Sentences as every system translated them.

    Attributes:
        languages: of source and target.
        names: of the systems.
    """

    languages: Sequence[str]
    names: Sequence[str]
    sentences: Sequence[Translations]


Block = Union[Heading, Paragraph, Listing, Table, Figure, Preformatted, Samples]


@dataclass(frozen=True)
class Document:
    """A report: what stands before the first heading, and the sections under theirs."""

    title: str
    summary: Sequence[Block]
    sections: Mapping[str, Sequence[Block]] = field(default_factory=dict)


def pieces(text: Text) -> List[Inline]:
    """The pieces of a text.

    >>> pieces("a"), pieces(["a", Code("b")])
    (['a'], ['a', Code(text='b')])
    """
    return [text] if isinstance(text, (str, Code, Strong, Aside, Mark)) else list(text)
