"""The corpus of the system tests, binarised by the real command."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.commands import binarise_reversals, draw_sentence, made_once

WORDS = ["routing", "by", "agreement", "lets", "parts", "vote", "for", "wholes", "they", "form"]


def write_corpus(folder: Path) -> None:
    """Write the text, and binarise it into ``bin``."""
    draw = random.Random(1)
    sizes = {"train": 48, "valid": 8, "test": 8}
    binarise_reversals(
        folder,
        {split: [draw_sentence(draw, WORDS, 2, 7) for _ in range(n)] for split, n in sizes.items()},
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text and, in ``bin``, its data; made once for all workers."""
    return made_once(tmp_path_factory, "corpus", write_corpus)
