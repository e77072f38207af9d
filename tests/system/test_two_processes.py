"""Training in two processes equals training in one process with the doubled batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from capsnmt.checkpoints.load import load_checkpoint
from tests.commands import SYSTEMS, train, train_in_two

pytestmark = pytest.mark.system

SENTENCES = 48  # the corpus is one update: batches of either size hold the same sentences
EXACT = [
    # Adam would turn the rounding error of a zero gradient (the bias of the keys) into a full step
    *("--optimizer", "sgd", "--lr", "0.3", "--dropout", "0"),
    *("--disable-validation", "--no-epoch-checkpoints", "--save-interval", "100"),
    *("--save-interval-updates", "0"),
]


# "everything" has the parameters of every preset and the Transformer's own; that each gets a
# gradient is tested there. The Transformer by itself is trained at night.
@pytest.mark.parametrize(
    "system", [pytest.param("capsnmt_transformer", marks=pytest.mark.nightly), "everything"]
)
def test_two_processes_train_what_one_does_with_the_doubled_batch(
    system: str, corpus: Path, tmp_path: Path
) -> None:
    arch, flags = SYSTEMS[system]
    log = train_in_two(
        *(corpus / "bin", tmp_path / "two", arch, 4, *flags, *EXACT),
        *("--batch-size", SENTENCES // 2),
    )
    assert "training on 2 devices" in log
    assert "initialized host" in log
    train(
        *(corpus / "bin", tmp_path / "one", arch, 4, *flags, *EXACT),
        *("--batch-size", SENTENCES),
    )
    two, one = (
        load_checkpoint(tmp_path / processes / "checkpoint_last.pt") for processes in ("two", "one")
    )
    assert two["optimizer_history"][-1]["num_updates"] == 4
    assert two["model"].keys() == one["model"].keys()
    for name, tensor in one["model"].items():
        if not name.endswith("_float_tensor"):  # uninitialised memory in fairseq 0.12.2
            torch.testing.assert_close(
                two["model"][name], tensor, atol=1e-5, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )
