"""The page: an overview of all analyses and the browser of sentences, in one HTML file."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Sequence

from capsnmt.analysis.analyse import ANALYSES, Findings
from capsnmt.analysis.browser import browser_data
from capsnmt.analysis.plots import Figure as Picture
from capsnmt.analysis.sentences import Sentences
from capsnmt.report import html
from capsnmt.report.analysis_section import FIGURES
from capsnmt.report.elements import (
    Aside,
    Code,
    Element,
    Figure,
    Paragraph,
    Preformatted,
    Report,
    Table,
)

TEMPLATE = "analysis.html.j2"
SCRIPTS = ("heatmap.js", "maps.js", "browser.js")
LONGEST_TABLE = 400  # rows; the CSV file holds all


def render(
    findings: Findings,
    tables: Mapping[str, Mapping[str, str]],
    pictures: Mapping[str, Sequence[Picture]],
    drawn: Mapping[str, str],
    command: str = "",
) -> str:
    """Render the page.

    Args:
        findings: the finished analyses.
        tables: analysis -> name of each of its CSV files -> content.
        pictures: analysis -> its figures.
        drawn: name of each figure -> its SVG element.
        command: the command line that made the analysis.
    """
    from markupsafe import Markup

    sections: Dict[str, Sequence[Element]] = {
        analysis.title: [
            *_introduction(name, findings.missing.get(name, {})),
            *(Figure(each.name, each.alt, each.caption) for each in pictures.get(name, ())),
            *_tables(tables.get(name, {})),
        ]
        for name, analysis in ANALYSES.items()
        if name in findings.of or name in findings.missing
    }
    report = Report(
        f"Analysis of {', '.join(findings.sentences)}", list(_summary(findings, command)), sections
    )
    script = "".join(Path(__file__).with_name(name).read_text("utf-8") for name in SCRIPTS)
    sentences: Mapping[str, Any] = findings.of.get(Sentences.name, {})
    return html.render(
        report,
        drawn,
        package=__package__,
        template=TEMPLATE,
        # trusted: our own file, and JSON that cannot end its element
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=Markup(browser_data(sentences)) if sentences else "",
    )


def _summary(findings: Findings, command: str) -> Iterator[Element]:
    yield Table(
        "Systems",
        ["system", "sentences", "checkpoint", "data"],
        [
            [
                each.name,
                f"{findings.sentences[each.name]:,}",
                Code(str(each.path)),
                Code(str(each.data)),
            ]
            for each in findings.checkpoints
        ],
    )
    yield Paragraph(
        [
            "Sentences drawn at random with seed ",
            str(findings.settings.seed),
            " from the subset ",
            Code(findings.settings.subset),
            " of the data, without dropout, the decoder reading the references. Layers, heads and "
            "positions count from 1. The numbers are in the CSV files next to this page, the "
            "figures in ",
            Code(FIGURES),
            ".",
        ]
    )
    if command:
        yield Preformatted(command, "bash", folded="Command")


def _introduction(name: str, missing: Mapping[str, str]) -> Iterator[Element]:
    yield Paragraph(ANALYSES[name].explanation)
    for system, reason in missing.items():
        yield Paragraph([Aside(f"Not for {system}: {reason}.")])


def _tables(files: Mapping[str, str]) -> Iterator[Element]:
    """Yield the numbers as folded tables, and the names of files that are too long for the page."""
    long = [f"{file}.csv" for file, text in files.items() if text.count("\n") > LONGEST_TABLE]
    for file, text in files.items():
        columns, *rows = csv.reader(io.StringIO(text))
        if rows and f"{file}.csv" not in long:
            texts = [
                at for at in range(len(columns)) if not all(_is_number(row[at]) for row in rows)
            ]
            numeric = max(texts) + 1 if texts else 0
            yield Table(f"{file}.csv", columns, rows, numeric, folded=f"Numbers ({file}.csv)")
    if long:
        yield Paragraph(["Numbers: ", Code(", ".join(long))])


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number or empty."""
    try:
        return not cell or float(cell) is not None
    except ValueError:
        return False
