"""The analysis of the systems: a link to the page of ``capsnmt-analyse``, and some figures."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterator, List

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.report.elements import Element, Figure, Link, Paragraph
from capsnmt.report.figures import svg
from capsnmt.report.page import Part

# what capsnmt-analyse writes into its folder
PAGE = "analysis.html"
FIGURES, CAPTIONS = "figures", "captions.json"

FOLDERS = ("", "analysis/")  # where it may lie in the folder of the report
SHOWN = ("agreement-", "attention-sentence-")  # of the systems themselves, not statistics
MOST = 8


def analysis(output: Path) -> Iterator[Part]:
    """Yield the part about an analysis, if there is one.

    Args:
        output: folder of the report.

    Raises:
        ConfigurationError: a file of the analysis is missing or damaged.
    """
    for folder in FOLDERS:
        if (output / folder / PAGE).is_file():
            yield _part(output, folder)
            return


def _part(output: Path, folder: str) -> Part:
    captions = records.read(output / folder / FIGURES / CAPTIONS, dict)
    shown = [name for name in captions if name.startswith(SHOWN)][:MOST]
    elements: List[Element] = [
        Paragraph(
            [
                "What the systems do inside: all figures, their numbers and a browser of sentences "
                "are on the ",
                Link("page of the analysis", f"{folder}{PAGE}"),
                ".",
            ]
        )
    ]
    pictures: Dict[str, str] = {}
    for name in shown:
        path = f"{folder}{FIGURES}/{name}"
        try:
            texts = captions[name]
            elements.append(Figure(path, str(texts["alt"]), str(texts["caption"])))
            pictures[path] = svg((output / f"{path}.svg").read_bytes(), path)
        except (LookupError, TypeError, ValueError, FileNotFoundError):
            raise ConfigurationError(
                f"{output / path}.svg: it or its caption is missing or damaged: run "
                "capsnmt-analyse again"
            ) from None
    return Part("", [], {"Analysis": elements}, pictures=pictures)
