"""Layer dropout with every mechanism that reads the outputs of all layers."""

from __future__ import annotations

import pytest
import torch

from tests.support import build, forward, sentences

INPUTS = sentences(5, 3), sentences(4, 2, seed=1)
DROP = ("--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5")
READERS = {
    "linear": ("--layer-aggregation", "linear"),
    "em-routing": ("--layer-aggregation", "em-routing"),
    "dlcl": ("--layer-aggregation", "dlcl"),
    "dense": ("--layer-aggregation", "dense"),
    "transparent": ("--layer-aggregation", "transparent"),
    "mlmha": ("--mlmha", "M-10"),
}


@pytest.mark.parametrize("flags", READERS.values(), ids=READERS)
def test_training_with_dropped_layers_reads_as_many_layers(flags: tuple) -> None:
    model = build("capsnmt_transformer", *DROP, *flags).train()
    outputs = set()
    for seed in range(6):
        torch.manual_seed(seed)
        output = forward(model, *INPUTS)
        output.sum().backward()
        outputs.add(round(output.abs().sum().item(), 3))
    assert len(outputs) > 1


@pytest.mark.parametrize("mode", ["linear", "dense"])
def test_a_dropped_layer_is_the_identity_and_fairseqs_draw_decides_which(mode: str) -> None:
    """Both start as the top layer alone, so they must equal plain layer dropout."""
    plain = build("capsnmt_transformer", *DROP).train()
    model = build("capsnmt_transformer", *DROP, "--layer-aggregation", mode).train()
    model.load_state_dict(plain.state_dict(), strict=False)
    for seed in range(6):
        outputs = []
        for one in (plain, model):
            torch.manual_seed(seed)
            outputs.append(forward(one, *INPUTS))
        torch.testing.assert_close(*outputs)


def test_no_layer_is_dropped_in_evaluation() -> None:
    model = build("capsnmt_transformer", *DROP, "--layer-aggregation", "linear")
    kept = build("capsnmt_transformer", "--layer-aggregation", "linear")
    kept.load_state_dict(model.state_dict())
    torch.testing.assert_close(forward(model, *INPUTS), forward(kept, *INPUTS))
