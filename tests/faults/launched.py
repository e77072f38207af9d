"""A row that ``capsnmt-run`` has trained, generated and scored, for the tests of what it leaves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import List

import pytest

from tests.commands import made_once, succeed, write_corpus
from tests.small_row import SMALL

# the training ends by epochs, so that no number of updates says that it is finished
BY_EPOCHS = [
    *("--max-update", "1000", "--set", "train.max-epoch=1"),
    *("--set", "train.save-interval-updates=1", "--set", "average.last-updates=1"),
    *("--set", "batch.tokens-per-update=128", "--set", "batch.max-tokens=128"),
]


def prepared(factory: pytest.TempPathFactory) -> Path:
    """Return the folder of prepared data: the text, the data of fairseq, the manifest."""
    corpus = made_once(factory, "corpus", write_corpus)

    def make(folder: Path) -> None:
        shutil.copytree(corpus / "bin", folder / "bin")
        (folder / "raw").mkdir()
        for language in ("en", "de"):
            shutil.copy(corpus / f"test.{language}", folder / "raw" / f"news.{language}")
        (folder / "manifest.json").write_text('{"subsets": {"news": "test"}}', "utf-8")

    return made_once(factory, "faults-prepared", make)


def arguments(data: Path, output: Path) -> List[object]:
    """Return the arguments of ``capsnmt-run`` for the row."""
    (output / "row.yaml").write_text(SMALL, "utf-8")
    row = ["--config", output / "row.yaml", "--cpu", "--threads", "1", "--prepared", data]
    return [*row, "--output", output / "runs"]


def launched(factory: pytest.TempPathFactory) -> Path:
    """Return the folder, of any bytes, of a launch; its run is ``runs/row/seed-1``."""
    data = prepared(factory)

    def launch(folder: Path) -> None:
        succeed("capsnmt.launch", *arguments(data, folder), *BY_EPOCHS)

    return made_once(factory, os.fsdecode(b"launched-\xff"), launch)
