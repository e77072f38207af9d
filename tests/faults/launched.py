"""A row that ``capsnmt-run`` has trained, generated and scored, for the tests of what it leaves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import List

import pytest

from tests.commands import binarise_reversals, draw_sentence, made_once, succeed
from tests.small_row import SMALL

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]


def prepared(factory: pytest.TempPathFactory) -> Path:
    """Return the folder of prepared data: the text, the data of fairseq, the manifest."""
    return made_once(factory, "faults-prepared", _prepare)


def _prepare(folder: Path) -> None:
    draw = random.Random(1)
    sizes = {"train": 40, "valid": 4, "test": 4}
    binarise_reversals(
        folder,
        {
            split: [draw_sentence(draw, WORDS, 3, 12) for _ in range(n)]
            for split, n in sizes.items()
        },
    )
    (folder / "raw").mkdir()
    for language in ("en", "de"):
        (folder / f"test.{language}").rename(folder / "raw" / f"news.{language}")
    (folder / "manifest.json").write_text('{"subsets": {"news": "test"}}', "utf-8")


def arguments(data: Path, output: Path) -> List[object]:
    """Return the arguments of ``capsnmt-run`` for the row."""
    (output / "row.yaml").write_text(SMALL, "utf-8")
    row = ["--config", output / "row.yaml", "--cpu", "--threads", "1", "--prepared", data]
    return [*row, "--output", output / "runs"]


def launched(factory: pytest.TempPathFactory) -> Path:
    """Return the folder below which the row has run; its run is ``runs/row/seed-1``."""
    data = prepared(factory)

    def launch(folder: Path) -> None:
        succeed("capsnmt.launch", *arguments(data, folder))

    return made_once(factory, "faults-launched", launch)
