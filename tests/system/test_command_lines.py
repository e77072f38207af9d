"""The commands of fairseq with our systems, from training to translation, and in two processes.

With every commit tests/frozen compares what each command prints and writes, with all mechanisms at
once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import pytest
import torch

from capsnmt.checkpoints.load import load_checkpoint
from tests.commands import EVERYTHING, ON_CPU, hypotheses, in_two, scores, succeed, train, training
from tests.compiler import needs_compiler
from tests.support import PLUGIN

pytestmark = pytest.mark.system

LAST = "checkpoint_last.pt"
SENTENCES = 48  # the corpus is one update: batches of either size hold the same sentences
EXACT = [
    # Adam would turn the rounding error of a zero gradient (the bias of the keys) into a full step
    *("--optimizer", "sgd", "--lr", "0.3", "--dropout", "0"),
    *("--disable-validation", "--no-epoch-checkpoints", "--save-interval", "100"),
    *("--save-interval-updates", "0"),
]
ONCE = ("--dropout", "0", "--save-interval-updates", "0", "--no-epoch-checkpoints")


def decoding(checkpoint: Path) -> List[object]:
    """Return the flags that decode with a checkpoint."""
    return ["--user-dir", PLUGIN, "--path", checkpoint, *ON_CPU, "--beam", "3"]


def parameters(folder: Path) -> Dict[str, torch.Tensor]:
    """Return the parameters after all updates; fairseq 0.12.2 leaves its marker uninitialised."""
    model = load_checkpoint(folder / LAST)["model"]
    return {name: model[name] for name in model if not name.endswith("_float_tensor")}


@pytest.mark.nightly  # to generate code takes minutes; tests/models compare all graphs
@pytest.mark.one_host
@needs_compiler
def test_compiled_training_ends_with_the_same_model(corpus: Path, tmp_path: Path) -> None:
    for name, more in (("eager", ()), ("compiled", ("--compile",))):
        train(corpus / "bin", tmp_path / name, "transformer_em_routing_tiny", 8, *ONCE, *more)
    eager, compiled = (parameters(tmp_path / name) for name in ("eager", "compiled"))
    # Adam moves a parameter by up to the learning rate, 0.005, whatever the size of its gradient
    torch.testing.assert_close(compiled, eager, rtol=0, atol=0.001)
    flags = decoding(tmp_path / "compiled" / LAST)
    assert len(hypotheses(succeed("fairseq_cli.generate", corpus / "bin", *flags))) == 8


def test_two_processes_train_what_one_does_with_the_doubled_batch(
    corpus: Path, tmp_path: Path
) -> None:
    """All mechanisms at once have the parameters of every preset."""

    def arguments(name: str, size: int) -> List[object]:
        arch, *flags = EVERYTHING
        flags = [*flags, *EXACT, "--batch-size", size]
        return training(corpus / "bin", tmp_path / name, arch, 4, *flags)

    log = in_two("fairseq_cli.train", arguments("two", SENTENCES // 2), tmp_path / "two")
    assert "training on 2 devices" in log
    succeed("fairseq_cli.train", *arguments("one", SENTENCES))
    two, one = (parameters(tmp_path / name) for name in ("two", "one"))
    torch.testing.assert_close(two, one, atol=1e-5, rtol=1e-5)


def test_a_stock_checkpoint_scores_the_same_under_our_architecture(
    corpus: Path, trained: Dict[str, Path]
) -> None:
    checkpoint = [corpus / "bin", "--user-dir", PLUGIN, "--path", trained["stock"], *ON_CPU]
    overrides = ["--model-overrides", "{'_name': 'capsnmt_transformer'}"]
    theirs = succeed("fairseq_cli.generate", *checkpoint)
    ours = succeed("fairseq_cli.generate", *checkpoint, *overrides)
    assert hypotheses(ours) == hypotheses(theirs)
    assert scores(ours) == pytest.approx(scores(theirs), abs=2e-4)  # printed with four digits
