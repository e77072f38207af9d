"""Writing an analysis: CSV files, figures, the arrays of the sentences, and the page."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

import msgspec

from capsnmt.analysis.analyse import ANALYSES, Findings
from capsnmt.analysis.base import Analysis, Cell
from capsnmt.analysis.plots import Figure
from capsnmt.analysis.sentences import Sentences
from capsnmt.pages.page import Table, write_page

HERE = Path(__file__).parent
SENTENCES = "sentences.json"
DIGITS = 6
LONGEST_TABLE = 400  # rows; the CSV file holds all


def write(findings: Findings, output: Path, command: str) -> Path:
    """Write all files, in place of those of an earlier analysis, and return the page."""
    tables = {name: table(ANALYSES[name], models) for name, models in findings.of.items()}
    files = {f"{name}.csv": csv_text(rows) for name, rows in tables.items()}
    sections: List[Dict[str, Any]] = []
    figures: List[Figure] = []
    for name, analysis in ANALYSES.items():
        if name in findings.of or name in findings.missing:
            own = drawn(analysis, findings)
            figures += own
            missing: Dict[str, List[str]] = {}
            for model, reason in findings.missing.get(name, {}).items():
                missing.setdefault(reason, []).append(model)
            sections.append(
                {
                    "name": name,
                    "analysis": analysis,
                    "missing": missing,
                    "figures": own,
                    "table": page_table(tables.get(name, [])),
                }
            )
    extra = script = ""
    if Sentences.name in findings.of:
        files[SENTENCES] = sentences_json(findings.of[Sentences.name])
        data = files[SENTENCES].replace("<", "\\u003c")  # so that nothing ends the element
        extra = (HERE / "browser.html").read_text("utf-8").replace("DATA", data)
        script = (HERE / "browser.js").read_text("utf-8")
    page = write_page(
        HERE / "analysis.md.j2",
        output,
        {
            "findings": findings,
            "sections": sections,
            "command": command,
            "systems": systems(findings),
        },
        {f"figures/{each.name}": each.draw for each in figures},
        files,
        extra,
        script,
    )
    names = {f"{each.name}.{kind}" for each in figures for kind in ("png", "svg")}
    stale = [path for path in (output / "figures").glob("*") if path.name not in names]
    stale += [output / f"{name}.csv" for name in ANALYSES if name not in findings.of]
    for path in [*stale, *([] if extra else [output / SENTENCES])]:
        path.unlink(missing_ok=True)
    return page


def drawn(analysis: type[Analysis], findings: Findings) -> List[Figure]:
    """Return the figures of an analysis, whose captions say on how many sentences they are."""
    models: Mapping[str, Any] = findings.of.get(analysis.name, {})
    if not models:
        return []
    rows = {
        each.name: [dict(zip(analysis.columns, row)) for row in models[each.name].rows()]
        if each.name in models
        else []
        for each in findings.checkpoints
    }
    figures = [*(plot.figure(rows) for plot in analysis.plots), *analysis.figures(models)]
    counts = sorted({each.sentences for each in models.values() if each.sentences})
    if not counts:
        return figures
    number = f"Sentences: {' or '.join(f'{count:,}' for count in counts)}."
    return [replace(each, caption=f"{each.caption} {number}") for each in figures]


def table(analysis: type[Analysis], models: Mapping[str, Analysis]) -> List[Sequence[Any]]:
    """Return header and rows of the CSV file of an analysis."""
    rows = [(name, *map(cell, row)) for name, each in models.items() for row in each.rows()]
    return [("system", *analysis.columns), *rows]


def cell(value: Cell) -> Any:
    """Return a cell of a CSV file; empty where there is no number."""
    if isinstance(value, float):
        return "" if value != value else round(value, DIGITS)
    return "" if value is None else value


def csv_text(rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as a CSV file."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def page_table(rows: Sequence[Sequence[Any]]) -> Optional[Table]:
    """Return the rows as a table of the page, unless they are too many."""
    if not 1 < len(rows) <= LONGEST_TABLE:
        return None
    header, *body = rows
    texts = [any(isinstance(each, str) and each for each in column) for column in zip(*body)]
    return Table(header, body, len(texts) - texts[::-1].index(True))


def systems(findings: Findings) -> Table:
    """Return the table of what was analysed."""
    return Table(
        ["system", "sentences", "checkpoint", "data"],
        [
            [each.name, f"{findings.sentences[each.name]:,}", str(each.path), str(each.data)]
            for each in findings.checkpoints
        ],
    )


def sentences_json(models: Mapping[str, Any]) -> str:
    """Return the kept sentences as JSON: of each, what each model has, or null."""
    numbers = sorted({number for analysis in models.values() for number in analysis.kept})
    found = {
        "systems": list(models),
        "sentences": [
            {
                "number": number,
                "systems": [analysis.kept.get(number) for analysis in models.values()],
            }
            for number in numbers
        ],
    }
    return msgspec.json.encode(found).decode()
