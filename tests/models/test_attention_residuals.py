"""Attention residuals in both stacks: what every sublayer reads is the equation's, and no sum."""

from __future__ import annotations

from typing import Any, List

import pytest
import torch
from torch import Tensor

from tests.modules.layer_aggregation_oracle import attended
from tests.support import build, forward, randomise_special_starts, sentences

FLAGS = (
    *("--encoder-normalize-before", "--decoder-normalize-before"),
    *("--layer-aggregation", "attention-residuals"),
)


def norms(layer: Any) -> List[torch.nn.Module]:
    """The norms of a layer's sublayers, the first first: each reads h_l."""
    names = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
    return [getattr(layer, name) for name in names if hasattr(layer, name)]


@pytest.mark.parametrize("block", [1, 2, 4])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
@torch.no_grad()
def test_every_sublayer_and_the_output_read_the_mixture_of_the_equation(
    side: str, block: int
) -> None:
    flags = ("--attention-residuals-block", str(block)) if block > 1 else ()
    model = randomise_special_starts(build("capsnmt_transformer", *FLAGS, *flags)).double()
    stack, read, computed = getattr(model, side), [], []
    for layer in stack.layers:
        layer.dropout_module.register_forward_hook(lambda _, __, v: computed.append(v))
        for norm in norms(layer):
            norm.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    stack.layer_norm.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    forward(model, sentences(5, 3), sentences(4, 2, seed=1))
    assert len(read) == len(computed) + 1 == 2 * len(norms(stack.layers[0])) + 1
    for token, sentence in ((0, 0), (3, 0), (2, 1)):
        v: List[Tensor] = [each[token, sentence] for each in computed]
        h = [each[token, sentence] for each in read]
        expected = attended(stack.connection, h[0], [lambda _, own=own: own for own in v])
        torch.testing.assert_close(h[1:], expected)
