"""Deep encoders train when their layers are connected."""

from __future__ import annotations

import math
from typing import List

import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.support import WORDS, batch, build, forward, sentences

DEEP = (
    *("--encoder-normalize-before", "--encoder-embed-dim", "32"),
    *("--decoder-layers", "1", "--decoder-normalize-before", "--decoder-embed-dim", "32"),
)
LENGTH, UPDATES = 4, 50


def losses(model: torch.nn.Module) -> List[float]:
    """Train to copy sentences of random words; return the loss of each batch."""
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.01, betas=(0.9, 0.98))
    found = []
    for update in range(UPDATES):
        lines = sentences(*[LENGTH] * 32, seed=update)
        logits = forward(model, lines, lines)
        loss = cross_entropy(logits.flatten(0, 1), batch(lines, left_pad=False).flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.one_host  # the oracles of values and gradients run on both hosts
@pytest.mark.parametrize(
    ("layers", "mode"),
    [
        (12, "dlcl"),
        # longer: the paper's depth, and connections of every layer by another matrix
        pytest.param(26, "dlcl", marks=pytest.mark.nightly),
        pytest.param(26, "dense", marks=pytest.mark.nightly),
        pytest.param(12, "attention-residuals", marks=pytest.mark.nightly),
    ],
)
def test_an_encoder_of_many_connected_layers_learns_to_copy(layers: int, mode: str) -> None:
    """Its loss falls below that of the best decoder without a source, which knows the length."""
    without_source = math.log(WORDS) * LENGTH / (LENGTH + 1)
    flags = ("--encoder-layers", str(layers), "--layer-aggregation", mode)
    found = losses(build("capsnmt_transformer", *DEEP, *flags))
    assert sum(found[-5:]) / 5 < without_source - 0.2, found
