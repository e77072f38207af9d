"""A small corpus, binarised by the real command."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.commands import made_once, succeed

WORDS = ["routing", "by", "agreement", "lets", "parts", "vote", "for", "wholes", "they", "form"]


def _binarise(folder: Path) -> None:
    draw = random.Random(1)
    for split, lines in (("train", 48), ("valid", 8), ("test", 8)):
        source = [" ".join(draw.choices(WORDS, k=draw.randint(2, 7))) for _ in range(lines)]
        target = [" ".join(reversed(line.split())) for line in source]
        for side, text in (("en", source), ("de", target)):
            (folder / f"{split}.{side}").write_text("\n".join(text) + "\n", "utf-8")
    succeed(
        "fairseq_cli.preprocess",
        *("-s", "en", "-t", "de", "--joined-dictionary", "--destdir", folder / "bin"),
        *("--trainpref", folder / "train", "--validpref", folder / "valid"),
        *("--testpref", folder / "test"),
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text and, in ``bin``, its data; made once for all workers."""
    return made_once(tmp_path_factory, "corpus", _binarise)
