"""Sweeps in a report: the curves that the runs' descriptions name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import List

import pytest

from tests.report.finished_runs import edit, page, rows_of, write_swept


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    write_swept(tmp_path / "output")
    return tmp_path / "output"


def curves_of(*folders: Path) -> List[str]:
    """The first cells of the table of the sweep."""
    table = rows_of(page(folders).partition("## Sweeps")[2], "system")
    return [row[0].replace("\\_", "_") for row in table[1:]]


def test_values_are_numbers_in_rising_order_then_texts(swept: Path) -> None:
    texts = shutil.copytree(swept / "em_routing_layer-capsules-8", swept / "em_routing_all")
    for path in texts.glob("seed-*/config.json"):
        edit(path, lambda config: config["sweep"].update(value="all"))
    header, *_ = rows_of(page([swept]).partition("## Sweeps")[2], "system")
    assert header == ["system", "8", "64", "512", "all"]


def test_a_row_in_two_outputs_is_two_curves(swept: Path, tmp_path: Path) -> None:
    again = shutil.copytree(swept, tmp_path / "again")
    assert curves_of(swept, again)[-2:] == [f"em_routing ({swept})", f"em_routing ({again})"]


def test_a_baseline_that_was_not_tested_against_is_the_first_row(swept: Path) -> None:
    for path in swept.glob("em_routing_*/seed-*/config.json"):
        edit(path, lambda config: config.update(baseline=None))
    rows = sorted(swept.glob("em_routing_*"))
    assert curves_of(swept / "baseline", *rows) == ["baseline", "em_routing"]
    assert curves_of(*rows) == ["em_routing"]
