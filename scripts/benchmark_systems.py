"""What the benchmark can measure: the rows of the papers, and systems given by their flags."""

import argparse
import difflib
from dataclasses import dataclass, field
from typing import Dict, List, Optional

from scripts.paper_rows import PAPERS, PaperRow, flag_text, load_rows, relative_speed
from scripts.workload import stock_flags

# the phases that papers time, and what they call them
PAPER_PHASES = {"train": "training", "decode": "decoding"}


@dataclass(frozen=True)
class System:
    """What is measured, and against what."""

    name: str  # a row, or the name that was given
    flags: str  # its model and loss
    stock: str  # the flags of the Transformer to compare with
    paper: str = ""  # of the row; empty for a system that was given
    paper_speed: Dict[str, float] = field(default_factory=dict)  # its ratio by phase, if reported


def system_of(row: PaperRow, size: Optional[str] = None) -> System:
    """Return a row as a system, in its own or another size."""
    stock = [stock_flags(size or row.size), flag_text(row.baseline.flags)]
    speeds = {phase: relative_speed(row, name) for phase, name in PAPER_PHASES.items()}
    printed = {phase: speed for phase, speed in speeds.items() if speed}
    return System(row.key, row.command(size), " ".join(stock).strip(), row.paper, printed)


def different_rows() -> List[PaperRow]:
    """Return one row for each model and loss, by paper.

    Rows that differ only in their data or their settings are one. The one with a reported speed
    stands for them.
    """
    found: Dict[str, PaperRow] = {}
    for row in sorted(load_rows().values(), key=lambda row: [*PAPERS, row.paper].index(row.paper)):
        known = found.setdefault(row.command(), row)
        if relative_speed(row, "training") and not relative_speed(known, "training"):
            found[row.command()] = row
    return list(found.values())


def row_key(text: str) -> str:
    """Return the name of a row, as the type of a flag."""
    if text in load_rows():
        return text
    near = difflib.get_close_matches(text, load_rows(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "docs/configurations.md lists them"
    raise argparse.ArgumentTypeError(f"{text!r} is not a row: {hint}")
