"""``torch.export`` of every module: the program computes the same at other sizes."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest
import torch
import torch.nn as nn
from torch import Tensor
from torch.torch_version import TorchVersion

from capsnmt.modules.attention import Attention
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.head_aggregation import ROUTINGS, HeadGate, HeadMixing, HeadRouting
from capsnmt.modules.layer_aggregation import (
    CONNECTIONS,
    POSITION_WISE,
    TransparentMixture,
    layer_aggregation,
    layer_connection,
)
from capsnmt.modules.layer_aggregation.transparent import BlockAttention
from capsnmt.modules.multi_layer_attention import VARIANTS, MultiLayerAttention

pytestmark = pytest.mark.skipif(
    TorchVersion(torch.__version__) < (2, 6), reason="its torch.export has no Dim.AUTO"
)
D, HEADS, SOURCES = 16, 4, 3


def gated() -> Attention:
    attention = Attention(D, HEADS)
    attention.head_gate = HeadGate(D, HEADS)
    return attention


def talking() -> Attention:
    attention = Attention(D, HEADS)
    attention.score_mixing, attention.weight_mixing = HeadMixing(HEADS), HeadMixing(HEADS)
    return attention


def routed(routing: str) -> Attention:
    attention = Attention(D, HEADS)
    attention.out_proj = HeadRouting(D, HEADS, routing, num_capsules=8, normalize=True)
    return attention


class ToItself(nn.Module):
    """Self-attention as a function of one tensor and a mask."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.attention(x, None, padding)[0]


class ToSources(ToItself):
    """Encoder-decoder attention: the query is a function of the keys."""

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.attention(x[..., :D] * 2, x, padding)[0]


class OfLayers(nn.Module):
    """A function of a list of layers, as one of a stack of them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, stacked: Tensor) -> Tensor:
        return self.module(list(stacked))


def attention_inputs(width: int) -> Callable[[int, int], Tuple[Tensor, ...]]:
    """Return a function of length and batch: features and a mask with padding on the left."""

    def make(length: int, batch: int) -> Tuple[Tensor, ...]:
        padding = torch.zeros(batch, length, dtype=torch.bool)
        padding[1, :2] = True
        return torch.randn(length, batch, width), padding

    return make


def layer_inputs(length: int, batch: int) -> Tuple[Tensor, ...]:
    return (torch.randn(SOURCES, length, batch, D),)


SELF_ATTENTIONS: Dict[str, Callable[[], Attention]] = {
    "plain": lambda: Attention(D, HEADS),
    "gated": gated,
    "talking": talking,
    **{name: lambda name=name: routed(name) for name in ROUTINGS},
    "vertical": lambda: CapsuleAttention(D, HEADS, vertical=True),
    "horizontal": lambda: CapsuleAttention(D, HEADS, horizontal=True),
}
CROSS_ATTENTIONS: Dict[str, Callable[[], Attention]] = {
    **{name: lambda name=name: MultiLayerAttention(D, HEADS, SOURCES, name) for name in VARIANTS},
    "block": lambda: BlockAttention(D, HEADS, block=1),
}
AGGREGATIONS: Dict[str, Callable[[], nn.Module]] = {
    **{
        name: lambda name=name: layer_aggregation(name, D, SOURCES, 24, 8) for name in POSITION_WISE
    },
    **{
        name: lambda name=name: layer_connection(name, D, SOURCES - 1, False)
        for name in CONNECTIONS
    },
    "transparent": lambda: TransparentMixture(SOURCES, 2),
}
# name -> (the module, its inputs, where length and batch are in their shapes)
MODULES: Dict[str, Tuple[Callable[[], nn.Module], Any, Tuple[Tuple[int, ...], ...]]] = {
    **{
        name: (lambda make=make: ToItself(make()), attention_inputs(D), ((0, 1), (0, 1)))
        for name, make in SELF_ATTENTIONS.items()
    },
    **{
        name: (lambda make=make: ToSources(make()), attention_inputs(SOURCES * D), ((0, 1), (0, 1)))
        for name, make in CROSS_ATTENTIONS.items()
    },
    **{
        name: (lambda make=make: OfLayers(make()), layer_inputs, ((1, 2),))
        for name, make in AGGREGATIONS.items()
    },
}


# one of each code; the others differ in a number or a name
OFTEN = ("plain", "talking", "em", "vertical", "horizontal", "M-10", "em-routing", "attention")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.nightly]) for name in MODULES],
)
def test_an_exported_module_computes_the_same_at_other_sizes(name: str) -> None:
    make, inputs, sizes = MODULES[name]
    torch.manual_seed(0)
    module = make().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3)
    auto = torch.export.Dim.AUTO
    shapes = tuple(dict.fromkeys(axes, auto) for axes in sizes)
    program = torch.export.export(module, inputs(5, 3), dynamic_shapes=shapes).module()
    for length, batch in ((5, 3), (9, 2)):
        given = inputs(length, batch)
        torch.testing.assert_close(program(*given), module(*given))
