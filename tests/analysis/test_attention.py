"""Attention distance and entropy against naive loops over the weights that attentions return."""

from __future__ import annotations

import math

import pytest
import torch

from capsnmt.analysis.attention import AttentionStatistics
from capsnmt.analysis.forward_pass import Attended
from capsnmt.models import PRESETS
from tests.analysis.passes import (
    make_batch,
    naive_attention,
    pass_through,
    returned_weights,
    run,
)
from tests.support import build

DROPOUT = ("--dropout", "0.5", "--attention-dropout", "0.5", "--activation-dropout", "0.5")
MODELS = {
    **{preset: (preset, ()) for preset in PRESETS},
    "M-01": ("transformer_mlmha", ("--mlmha", "M-01")),
    "M-11": ("transformer_mlmha", ("--mlmha", "M-11")),
    "transparent": ("capsnmt_transformer", ("--layer-aggregation", "transparent")),
    "gated": ("capsnmt_transformer", ("--head-aggregation", "gated")),
    "talking": ("capsnmt_transformer", ("--head-aggregation", "talking")),
}


@pytest.mark.parametrize("left_pad", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_are_those_of_loops_over_returned_weights(name: str, left_pad: bool) -> None:
    arch, flags = MODELS[name]
    model, batch = build(arch, *DROPOUT, *flags), make_batch(left_pad)
    with returned_weights(model) as weights:
        pass_through(model, batch)
    expected = naive_attention(weights, batch)
    found = {row[:3]: row[3:] for row in run(AttentionStatistics, model, batch).rows()}
    assert list(found) == sorted(found, key=lambda row: (ROLES.index(row[0]), *row[1:]))
    assert found.keys() == expected.keys()
    for row, numbers in expected.items():
        assert found[row] == pytest.approx(numbers, rel=1e-4, abs=1e-6), row


ROLES = ["enc-self", "enc-dec", "dec-self"]


def test_several_batches_are_one_ratio_of_sums() -> None:
    model, batches = build("capsnmt_transformer"), [make_batch(True), make_batch(False, first=3)]
    alone = [run(AttentionStatistics, model, batch) for batch in batches]
    both = run(AttentionStatistics, model, *batches)
    key = "enc-self", 1
    for sums, *parts in zip(both.sums, *(each.sums for each in alone)):
        expected = sum(part._sums[key][0] for part in parts) / sum(
            part._sums[key][1] for part in parts
        )
        torch.testing.assert_close(sums.ratio(key), expected)


def test_observing_changes_nothing() -> None:
    model, batch = build("transformer_em_routing"), make_batch(True)
    before = pass_through(model, batch)
    run(AttentionStatistics, model, batch)
    assert torch.equal(pass_through(model, batch), before)
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("padding", [0, 3])
def test_limits_of_uniform_and_one_hot_attention(length: int, padding: int) -> None:
    mask = torch.tensor([[False] * padding + [True] * length])
    weights = torch.zeros(1, 2, mask.size(1), mask.size(1))
    weights[:, 0] = mask / length  # head 1: uniform over the real keys
    weights[:, 1, :, padding] = 1.0  # head 2: always the first token
    heads = torch.zeros(1, 2, mask.size(1), 4)
    found = run(AttentionStatistics, build("capsnmt_transformer"))
    batch = make_batch(True)
    found.attended(Attended("enc-self", 1, weights, heads, heads, mask, mask, batch))
    uniform, one_hot = (row[3:] for row in found.rows())
    positions = range(length)
    mean = sum(abs(i - j) for i in positions for j in positions) / length**2
    assert uniform[0] == pytest.approx(mean)
    assert uniform[2] == pytest.approx(math.log(length), abs=1e-6)
    assert one_hot == pytest.approx(((length - 1) / 2, (length - 1) / 2, 0.0))
