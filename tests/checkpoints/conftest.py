"""A trained model of fairseq, for the tests that need checkpoints as fairseq writes them."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest

from tests.commands import made_once, succeed
from tests.support import PLUGIN

TINY = [
    *("--arch", "transformer", "--encoder-layers", "1", "--decoder-layers", "1"),
    *("--encoder-embed-dim", "8", "--decoder-embed-dim", "8"),
    *("--encoder-ffn-embed-dim", "8", "--decoder-ffn-embed-dim", "8"),
    *("--encoder-attention-heads", "2", "--decoder-attention-heads", "2"),
    # stock fairseq's post-norm encoder fails in evaluation on torch 2.2 ("Mask Type")
    *("--encoder-normalize-before", "--decoder-normalize-before"),
    "--share-decoder-input-output-embed",
]


def corpus() -> List[str]:
    """Twelve short sentences over eight words."""
    words = ["caps", "ules", "vote", "by", "agree", "ment", "in", "layers"]
    return [" ".join(words[i % 8 : i % 8 + 1 + i % 5] + words[: i % 4]) for i in range(12)]


def train(folder: Path) -> None:
    """Binarise the corpus and train two epochs of a few updates, a checkpoint each."""
    for side in ("en", "de"):
        (folder / f"text.{side}").write_text("".join(f"{line}\n" for line in corpus()), "utf-8")
    prefix = folder / "text"
    succeed(
        "fairseq_cli.preprocess",
        *("-s", "en", "-t", "de", "--trainpref", prefix, "--validpref", prefix),
        *("--testpref", prefix, "--destdir", folder / "data", "--joined-dictionary"),
    )
    succeed(
        "fairseq_cli.train",
        *(folder / "data", "--user-dir", PLUGIN, *TINY, "--save-dir", folder / "checkpoints"),
        *("--optimizer", "adam", "--lr", "0.01", "--batch-size", "4", "--max-epoch", "2"),
        *("--save-interval-updates", "1", "--keep-best-checkpoints", "3", "--cpu"),
        *("--num-workers", "0", "--no-progress-bar", "--eval-bleu"),
        *("--required-batch-size-multiple", "1"),
        *("--eval-bleu-args", '{"beam": 1, "max_len_b": 4}'),
    )


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``data/`` and ``checkpoints/``, trained once for all parallel workers."""
    return made_once(tmp_path_factory, "trained", train)
