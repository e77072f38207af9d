"""The chunked loss and the fused optimizer in fairseq-train, next to fairseq's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List

import pytest
import torch

from capsnmt.checkpoints.load import load_checkpoint
from tests.commands import train

pytestmark = pytest.mark.system

SHARED = ["--label-smoothing", "0.1", "--report-accuracy", "--clip-norm", "0.5"]
SHARED += ["--update-freq", "2", "--weight-decay", "0.01", "--adam-betas", "(0.9, 0.98)"]
THEIRS = [*SHARED, "--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam"]
OURS = [
    *(*SHARED, "--criterion", "chunked_label_smoothed_cross_entropy", "--loss-chunk-tokens", "16"),
    *("--optimizer", "fused_adam"),
]
SYSTEM = "transformer_em_routing_tiny"


def logged(log: str) -> List[Dict[str, float]]:
    """The numbers of every logged update and validation that do not depend on time."""
    names = ("loss", "nll_loss", "ppl", "accuracy", "gnorm", "clip", "lr", "num_updates", "bsz")
    marks = re.compile(r"\| (train_inner|train|valid) \||valid on")
    lines = [line for line in log.splitlines() if marks.search(line)]
    found = [dict(re.findall(r"(\w+)[ =] ?([\d.e-]+)", line)) for line in lines]
    return [{name: float(line[name]) for name in names if name in line} for line in found]


@pytest.fixture(scope="module")
def runs(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, List]:
    """Folder and log of four updates with fairseq's and with our criterion and optimizer."""
    made = {}
    for name, flags in (("theirs", THEIRS), ("ours", OURS)):
        folder = tmp_path_factory.mktemp(name)
        made[name] = [folder, train(corpus / "bin", folder, SYSTEM, 4, *flags)]
    return made


def assert_same_model(one: Path, other: Path) -> None:
    models = [load_checkpoint(path / "checkpoint_last.pt")["model"] for path in (one, other)]
    for model in models:
        for name in list(model):
            # fairseq 0.12.2 saves the buffer without a value; the softmax cancels the bias of the
            # keys, so that its gradient is nothing but rounding, which Adam scales to a full step
            if name.endswith(("_float_tensor", "k_proj.bias")):
                del model[name]
    torch.testing.assert_close(*models, rtol=1e-3, atol=1e-4)


def test_both_log_the_same_numbers_and_end_with_the_same_model(runs: Dict[str, List]) -> None:
    theirs, ours = (logged(runs[name][1]) for name in ("theirs", "ours"))
    assert len(theirs) > 4
    assert len(theirs) == len(ours)
    for expected, measured in zip(theirs, ours):
        assert measured == pytest.approx(expected, rel=2e-3, abs=2e-3)
    assert any("accuracy" in line for line in ours)
    assert any("gnorm" in line for line in ours)
    assert_same_model(runs["ours"][0], runs["theirs"][0])
