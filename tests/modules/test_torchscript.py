"""TorchScript of single modules and operators: the same outputs at other lengths."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest
import torch
import torch.nn as nn
from torch import Tensor

from capsnmt.modules.attention import Attention, BlockAttention
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.head_aggregation import HeadGate, HeadMixing, HeadRouting
from capsnmt.modules.layer_aggregation import POSITION_WISE, TransparentMixture, layer_aggregation
from capsnmt.modules.multi_layer_attention import VARIANTS, MultiLayerAttention
from capsnmt.routing import dynamic_routing, em_routing, simple_routing, vertical_routing

D, HEADS, SOURCES = 16, 4, 3
State = Dict[str, Dict[str, Optional[Tensor]]]


def with_random_numbers(module: nn.Module) -> Any:
    """The module in evaluation mode, away from the special point where it starts."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3)
    return module.eval()


def gated() -> Attention:
    attention = Attention(D, HEADS, self_attention=True)
    attention.head_gate = HeadGate(D, HEADS)
    return attention


def talking() -> Attention:
    attention = Attention(D, HEADS, self_attention=True)
    attention.score_mixing, attention.weight_mixing = HeadMixing(HEADS), HeadMixing(HEADS)
    return attention


def routed(routing: str) -> Attention:
    attention = Attention(D, HEADS, self_attention=True)
    attention.out_proj = HeadRouting(D, HEADS, routing, num_capsules=8, normalize=True)
    return attention


SELF_ATTENTIONS: Dict[str, Callable[[], Attention]] = {
    "plain": lambda: Attention(D, HEADS, self_attention=True),
    "gated": gated,
    "talking": talking,
    "simple": lambda: routed("simple"),
    "em": lambda: routed("em"),
    "vertical": lambda: CapsuleAttention(D, HEADS, vertical=True),
    "horizontal": lambda: CapsuleAttention(D, HEADS, horizontal=True),
    "both": lambda: CapsuleAttention(D, HEADS, vertical=True, horizontal=True),
}
CROSS_ATTENTIONS: Dict[str, Callable[[], Attention]] = {
    **{name: lambda name=name: MultiLayerAttention(D, HEADS, SOURCES, name) for name in VARIANTS},
    "block": lambda: BlockAttention(
        D, HEADS, block=1, kdim=D, vdim=D, encoder_decoder_attention=True
    ),
}


class Steps(nn.Module):
    """Incremental decoding: TorchScript copies a state that comes from Python."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        state: State = {}
        outputs: List[Tensor] = []
        for y in x.split(1):
            outputs.append(self.attention(y, y, y, incremental_state=state)[0])
        return torch.cat(outputs)


def padding(length: int) -> Tensor:
    """Two sentences, the second with two positions of padding on the left."""
    mask = torch.zeros(2, length, dtype=torch.bool)
    mask[1, :2] = True
    return mask


@pytest.mark.parametrize("name", SELF_ATTENTIONS)
def test_scripted_self_attention(name: str) -> None:
    attention = with_random_numbers(SELF_ATTENTIONS[name]())
    scripted = torch.jit.script(attention)
    for length in (3, 7):
        x = torch.randn(length, 2, D)
        for weights in (False, True):
            found = scripted(x, x, x, padding(length), need_weights=weights)
            expected = attention(x, x, x, padding(length), need_weights=weights)
            assert (found[1] is None) == (expected[1] is None) == (not weights)
            for one, other in zip(found[: 1 + weights], expected):
                torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", CROSS_ATTENTIONS)
def test_scripted_cross_attention(name: str) -> None:
    attention = with_random_numbers(CROSS_ATTENTIONS[name]())
    scripted = torch.jit.script(attention)
    for length in (3, 7):
        query, memory = torch.randn(2, 2, D), torch.randn(length, 2, SOURCES * D)
        given = (query, memory, memory, padding(length))
        torch.testing.assert_close(scripted(*given)[0], attention(*given)[0])


@pytest.mark.parametrize("name", ["plain", "talking", "em", "horizontal"])
def test_scripted_incremental_decoding(name: str) -> None:
    attention = with_random_numbers(SELF_ATTENTIONS[name]())
    decoder = Steps(attention)
    scripted = torch.jit.script(decoder)
    for length in (4, 6):
        x = torch.randn(length, 2, D)
        torch.testing.assert_close(scripted(x), decoder(x))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", POSITION_WISE)
def test_scripted_aggregation_of_layers(name: str, own: bool) -> None:
    if own and "routing" not in name:
        pytest.skip("only routing has capsules")
    module = with_random_numbers(layer_aggregation(name, D, SOURCES, 24, 8, own))
    scripted = torch.jit.script(module)
    for length in (3, 7):
        layers = list(torch.randn(SOURCES, length, 2, D))
        torch.testing.assert_close(scripted(layers), module(layers))


def test_scripted_mixture_of_transparent_attention() -> None:
    module = with_random_numbers(TransparentMixture(SOURCES, 2))
    states: List[Tensor] = list(torch.randn(SOURCES, 5, 2, D))
    torch.testing.assert_close(torch.jit.script(module)(states), module(states))


MASK = padding(6)
OPERATORS: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "simple": (simple_routing, (torch.randn(2, 5, 4, 6, 2), 3)),
    "dynamic": (dynamic_routing, (torch.randn(2, 6, 6, 2), 3, MASK, MASK)),
    "em": (
        em_routing,
        (torch.randn(2, 4, 6, 2), torch.rand(6), torch.rand(6), 3, torch.rand(2, 4)),
    ),
    "vertical": (vertical_routing, (torch.randn(2, 3, 6, 6), 3, MASK, MASK)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_scripted_operator_is_exact_in_every_precision(name: str, dtype: torch.dtype) -> None:
    operator, (votes, *others) = OPERATORS[name]
    found = torch.jit.script(operator)(votes.to(dtype), *others)
    expected = operator(votes.to(dtype), *others, backend="eager")
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
