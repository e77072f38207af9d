"""Writing an analysis: CSV files, figures and the page, complete or absent."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Set

from capsnmt import records
from capsnmt.analysis.analyse import ANALYSES, Findings
from capsnmt.analysis.base import Analysis, Cell
from capsnmt.analysis.page import render
from capsnmt.analysis.plots import Figure
from capsnmt.analysis.sentences import Sentences
from capsnmt.cli import ConfigurationError
from capsnmt.files import write_all
from capsnmt.report.analysis_section import CAPTIONS, FIGURES, PAGE
from capsnmt.report.figures import METADATA, drawing, image, svg

DIGITS = 6
FILES = Path(FIGURES) / "files.json"
"""The names of all files of the analysis, in its folder."""


def tables(systems: Mapping[str, Analysis]) -> Dict[str, str]:
    """Return the CSV files of an analysis by name."""
    texts: Dict[str, io.StringIO] = {}
    for system, analysis in systems.items():
        files = {analysis.name: (analysis.columns, analysis.rows())}
        if isinstance(analysis, Sentences):
            files = analysis.tables()
        for name, (columns, rows) in files.items():
            if name not in texts:
                texts[name] = io.StringIO()
                csv.writer(texts[name], lineterminator="\n").writerow(["system", *columns])
            csv.writer(texts[name], lineterminator="\n").writerows(
                [system, *map(_cell, row)] for row in rows
            )
    return {name: text.getvalue() for name, text in texts.items()}


def _cell(value: Cell) -> Any:
    """Return a cell of a CSV file; empty where there is no number."""
    if isinstance(value, float):
        return "" if value != value else round(value, DIGITS)
    return value


def pictures(findings: Findings) -> Dict[str, List[Figure]]:
    """Return the figures of each analysis, in the order of the page."""
    return {
        name: ANALYSES[name].figures(findings.of[name]) for name in ANALYSES if name in findings.of
    }


def write(findings: Findings, output: Path, command: str = "") -> List[Path]:
    """Write all files under temporary names, then rename them, the page last.

    Files of an earlier analysis in the folder that this one does not have are removed.

    Args:
        findings: the finished analyses.
        output: the folder.
        command: the command line that made the analysis, for the page.

    Raises:
        ConfigurationError: matplotlib or Jinja2 is not installed.
    """
    contents: Dict[Path, bytes] = {}
    texts = {name: tables(findings.of[name]) for name in ANALYSES if name in findings.of}
    for files in texts.values():
        for file, text in files.items():
            contents[output / f"{file}.csv"] = text.encode()
    with drawing([each.name for each in findings.checkpoints]):
        of_analyses = pictures(findings)
        drawn: Dict[str, str] = {}
        captions: Dict[str, Dict[str, str]] = {}
        for picture in (each for some in of_analyses.values() for each in some):
            figure = picture.draw()
            images = {kind: image(figure, kind) for kind in METADATA}
            for kind, content in images.items():
                contents[output / FIGURES / f"{picture.name}.{kind}"] = content
            drawn[picture.name] = svg(images["svg"], picture.name)
            captions[picture.name] = {"alt": picture.alt, "caption": picture.caption}
    page = render(findings, texts, of_analyses, drawn, command)
    contents[output / FIGURES / CAPTIONS] = json.dumps(captions, indent=2).encode()
    contents[output / PAGE] = page.encode("utf-8", "replace")
    names = sorted(path.relative_to(output).as_posix() for path in contents)
    earlier = earlier_files(output)
    contents = {output / FILES: json.dumps(names, indent=2).encode(), **contents}
    write_all(contents)
    for path in earlier - set(contents):
        path.unlink()
    return list(contents)


def earlier_files(output: Path) -> Set[Path]:
    """Return the files of the analysis that is in the folder; none if it has no list of them."""
    try:
        names = records.load(output / FILES)
    except ConfigurationError:
        return set()
    if not isinstance(names, list):
        return set()
    # the two folders that an analysis writes to, whatever the list says
    paths = {output / name for name in names if isinstance(name, str)}
    return {path for path in paths if path.parent in (output, output / FIGURES) and path.is_file()}
