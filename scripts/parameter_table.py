#!/usr/bin/env python3
"""The parameters that each row of the papers adds to its baseline, as a Markdown table.

    scripts/parameter_table.py                               # print it
    scripts/parameter_table.py --write docs/parameters.md    # replace it between its markers

The counts are those of the papers' formulas, which a test holds equal to the models'.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Dict, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from capsnmt.arguments import OneLineParser
from capsnmt.errors import ConfigurationError
from capsnmt.files import atomic_writer
from scripts.rows import PAPERS, ROWS, Row

START = "<!-- parameter table: scripts/parameter_table.py -->"
END = "<!-- end of parameter table -->"
BASE = "--arch capsnmt_transformer"  # left out where it is the whole of --arch


def table() -> str:
    """Every row, and below it why a count is not the printed one."""
    rows = [row for row in ROWS.values() if row.paper]
    notes: Dict[str, int] = {}
    for row in rows:
        if row.mismatch:
            notes.setdefault(row.mismatch, len(notes) + 1)
    lines = ["| row | flags | paper | printed | ours |", "|---|---|---|---|---|"]
    lines += [cells(row, notes) for row in rows]
    sources = "; ".join(f"{paper}: {title}" for paper, title in PAPERS.items())
    lines += ["", f"{sources}.", ""]
    lines += [f"{number}. {reason}." for reason, number in notes.items()]
    return "\n".join(lines)


def cells(row: Row, notes: Dict[str, int]) -> str:
    """One line of the table."""
    printed = row.printed.text if row.printed else ""
    note = f" ({notes[row.mismatch]})" if row.mismatch else ""
    flags = row.command().replace(f"{BASE} ", "")
    columns = [row.name, f"`{flags}`", row.paper, printed, f"{row.extra:+,}{note}"]
    return "| " + " | ".join(columns) + " |"


def replace_table(text: str, name: str) -> str:
    """The text with our table between the markers.

    Raises:
        ConfigurationError: the markers do not stand there once each, in order.
    """
    lines = text.split("\n")
    places = [[n for n, line in enumerate(lines) if line == mark] for mark in (START, END)]
    if [len(place) for place in places] != [1, 1] or places[0] > places[1]:
        raise ConfigurationError(
            f"{name}: the table's place is not marked: put the lines '{START}' and '{END}' there, "
            f"once each"
        )
    (start,), (end,) = places
    return "\n".join([*lines[: start + 1], "", table(), "", *lines[end:]])


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Print the table, or write it."""
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the table in this file")
    path = parser.parse_args(argv).write
    if path is None:
        print(table())
        return
    try:
        text = replace_table(path.read_text(encoding="utf-8"), str(path))
        with atomic_writer(path) as file:
            file.write(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--write: {path}: {error}: give a text file of ours") from None


if __name__ == "__main__":
    main()
