#!/usr/bin/env python3
"""Tables of the documentation that are made from the rows' configurations.

    scripts/tables.py            # print them
    scripts/tables.py --write    # update docs/parameters.md and docs/configurations.md

A page marks the place of a table by two lines; what is between them is replaced. The numbers of
parameters are those of the papers' formulas, and a test compares the formulas with the models.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from capsnmt.cli import ConfigurationError, OneLineParser
from capsnmt.files import atomic_writer, bundled_folder
from capsnmt.launch.settings import load, read
from scripts.paper_rows import PAPERS, PaperRow, baseline_of, load_rows, reported_difference
from scripts.parameter_formulas import extra_parameters


def parameters() -> str:
    """Return what each row adds to its baseline, by paper, and why some counts differ."""
    rows = load_rows()
    notes: Dict[str, int] = {}
    lines: List[str] = []
    for paper in dict.fromkeys([*PAPERS, *(row.paper for row in rows.values())]):
        cells = [["row", "table", "flags", "reported", "exact"]]
        for row in rows.values():
            if row.paper == paper and row.reported.baseline:
                cells.append(parameter_cells(row, notes))
        if cells[1:]:
            lines += [f"### {PAPERS.get(paper, paper)}", "", markdown(cells), ""]
    reasons = [f"{number}. {note[0].upper()}{note[1:]}." for note, number in notes.items()]
    return "\n".join([*lines, *reasons])


def parameter_cells(row: PaperRow, notes: Dict[str, int]) -> List[str]:
    """Return one line of a table of parameters; ``notes`` are numbered as they appear."""
    difference, note = reported_difference(row, load_rows()), row.reported.note
    mark = f" ({notes.setdefault(note, len(notes) + 1)})" if note else ""
    flags = row.command().replace("--arch capsnmt_transformer ", "")
    return [
        f"`{row.key}`",
        row.reported.table,
        f"`{flags}`",
        difference.text if difference else "",
        f"{extra_parameters(row):+,}{mark}",
    ]


def configurations() -> str:
    """Return every row of each dataset with its place in a paper and the reported BLEU."""
    rows = load_rows()
    lines: List[str] = []
    for dataset in dict.fromkeys(row.dataset for row in rows.values()):
        cells = [["row", "table", "name there", "BLEU", "baseline"]]
        for row in (row for row in rows.values() if row.dataset == dataset):
            cells.append([f"`{row.name}`", place(row), row.reported.name, *bleu(row, rows)])
        lines += [f"### {dataset}", "", markdown(cells), ""]
    return "\n".join(lines[:-1])


def settings() -> str:
    """Return the settings of each paper, by dataset."""
    cells = [["settings", "tokens per update", "updates", "learning rate", "dropout", "search"]]
    for dataset in dict.fromkeys(row.dataset for row in load_rows().values()):
        for path in sorted((bundled_folder("configs") / dataset).glob("*.yaml")):
            if not read(path).get("paper"):
                cells.append([f"`{dataset}/{path.stem}`", *setting_cells(load(path))])
    return markdown(cells)


def setting_cells(found: Mapping[str, Any]) -> List[str]:
    """Return one line of the table of settings."""
    train, generate = found["train"], found["generate"]
    shape = {
        "inverse_sqrt": f"inverse square root, peak {train['lr']}",
        "cosine": f"cosine, {train['lr']} to {train.get('min-lr')}",
    }[train["lr-scheduler"]]
    return [
        f"{found['batch']['tokens-per-update']:,}",
        f"{train['max-update']:,}",
        f"{shape}, warm-up {train['warmup-updates']:,}",
        f"{train['dropout']}",
        f"beam {generate['beam']}, length penalty {generate['lenpen']}",
    ]


def place(row: PaperRow) -> str:
    """Return where the row is reported first."""
    return f"{PAPERS.get(row.paper, row.paper)}, {row.reported.table}"


def bleu(row: PaperRow, rows: Mapping[str, PaperRow]) -> List[str]:
    """Return the reported BLEU, and the baseline with its own, on the same set."""
    ours, theirs = row.reported, baseline_of(row, rows).papers[row.paper]
    test = ours.bleu is not None
    score, reference = (
        (ours.bleu, theirs.bleu) if test else (ours.validation_bleu, theirs.validation_bleu)
    )
    where = "" if test else " (validation)"
    if score is None:  # a comparison system, which no paper reports
        return ["", f"`{ours.baseline}`" if ours.baseline else ""]
    baseline = f"`{ours.baseline}` {reference:.2f}" if ours.baseline else ""
    return [f"{score:.2f}{where}", baseline]


def markdown(cells: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first line is its head."""
    head, *others = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join([head, "|" + "---|" * len(cells[0]), *others])


TABLES: Dict[str, Callable[[], str]] = {
    "parameters": parameters,
    "configurations": configurations,
    "settings": settings,
}
DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (DOCS / "parameters.md", DOCS / "configurations.md")


def markers(name: str) -> List[str]:
    """Return the lines before and after a table."""
    return [f"<!-- {name}: made by scripts/tables.py -->", f"<!-- end of {name} -->"]


def replace_tables(text: str, page: str) -> str:
    """Return the text of a page with every marked table replaced; errors name the page."""
    lines = text.split("\n")
    marked = [name for name in TABLES if {*markers(name)} & {*lines}]
    for name in marked or TABLES:
        start, end = markers(name)
        places = [[n for n, line in enumerate(lines) if line == mark] for mark in (start, end)]
        if [len(place) for place in places] != [1, 1] or places[0] > places[1]:
            raise ConfigurationError(
                f"{page}: the place of the table is not marked: write the lines '{start}' and "
                f"'{end}' there, once each"
            )
        (first,), (last,) = places
        lines[first + 1 : last] = ["", *TABLES[name]().split("\n"), ""]
    return "\n".join(lines)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Print the tables, or write them into pages."""
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write",
        type=Path,
        nargs="*",
        metavar="PAGE",
        help="replace the tables in these pages (default: in the pages of docs/)",
    )
    pages = parser.parse_args(argv).write
    if pages is None:
        print("\n\n".join(table() for table in TABLES.values()))
        return
    for page in pages or PAGES:
        try:
            text = replace_tables(page.read_text(encoding="utf-8"), str(page))
            with atomic_writer(page) as file:
                file.write(text)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--write {page}: {error}; give a page of ours") from None


if __name__ == "__main__":
    main()
