"""The pages of the documentation, and the pieces of them that tests look at."""

import re
from pathlib import Path
from typing import Iterator, List, NamedTuple, Tuple

REPO = Path(__file__).resolve().parents[2]
PAGES = [
    REPO / "README.md",
    REPO / "CHANGELOG.md",
    *sorted((REPO / "docs").glob("**/*.md")),
    REPO / "data_prep" / "README.md",
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[+−-]?\d+(?:,\d{3})*(?:\.\d+)?")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block of code."""

    page: Path
    language: str
    text: str


def name(page: Path) -> str:
    """The page's path inside the repository."""
    return str(page.relative_to(REPO))


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path) -> List[Block]:
    return [Block(page, *found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


def links(page: Path) -> List[str]:
    """The targets of the page's links and images, without those on the web."""
    found = LINK.findall(re.sub(r"`[^`]*`", "", prose(page)))
    return [target for target in found if not re.match(r"\w+:", target)]


def anchors(page: Path) -> List[str]:
    """The anchors of the page's headings, as GitHub makes them."""
    return [anchor(title) for title in re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)]


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def section(page: Path, name: str) -> str:
    """The text below the heading with an anchor, to the next heading."""
    (text,) = (
        text
        for title, text in re.findall(
            r"^#+ +(.+?) *\n(.*?)(?=^#+ |\Z)", prose(page), re.MULTILINE | re.DOTALL
        )
        if anchor(title) == name
    )
    return text


def sections(page: Path) -> Iterator[Tuple[str, str]]:
    """Title and text of each section of the second level."""
    for part in re.split(r"^## ", prose(page), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        yield title.strip(), text


def rows(text: str) -> List[List[str]]:
    """The cells of every table row in a text, the rows of titles and rules among them."""
    lines = (line.strip() for line in text.splitlines())
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in lines
        if line.startswith("|")
    ]


def numbers(text: str) -> List[float]:
    """The numbers of a text, with their signs."""
    return [float(n.replace("−", "-").replace(",", "")) for n in NUMBER.findall(text)]
