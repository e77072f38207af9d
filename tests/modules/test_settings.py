"""A setting that a module cannot have is one line that names it and what is allowed."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import pytest
import torch

from capsnmt.models.attention import HostedAttention
from capsnmt.modules.attention import Attention
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.head_aggregation import HeadRouting
from capsnmt.modules.layer_aggregation import (
    POSITION_WISE,
    TransparentMixture,
    layer_aggregation,
    layer_connection,
)
from capsnmt.modules.layer_aggregation.routing import LayerRouting
from capsnmt.modules.multi_layer_attention import MultiLayerAttention


def aggregate(mode: str = "em-routing", **setting: Any) -> Any:
    return layer_aggregation(
        **{"mode": mode, "embed_dim": 4, "num_layers": 3, "ffn_dim": 5, **setting}
    )


X = torch.zeros(3, 2, 8)
FUTURE = torch.full((3, 3), float("-inf")).triu(1)


BAD: List[Tuple[Callable[[], Any], str]] = [
    (lambda: Attention(8, 3), "3 heads do not divide the width 8"),
    (lambda: HeadRouting(8, 2, "max", 0), "'max'.*simple, em"),
    (lambda: HeadRouting(8, 2, "em", 3), "3 capsules"),
    (lambda: HeadRouting(8, 2, "em", -2), "-2 capsules"),
    (lambda: HeadRouting(8, 2, iterations=0), "iterations.*>= 1, not 0"),
    (lambda: HeadRouting(8, 2, backend="fast"), "backend 'fast'"),
    (lambda: MultiLayerAttention(4, 2, 2, "M-02"), "'M-02'.*M-00, M-01, M-10, M-11"),
    (lambda: MultiLayerAttention(4, 2, 0, "M-00"), "num_sources must be .* 1, not 0"),
    (lambda: aggregate("max"), "'max'.*linear, iterative, dynamic, attention, dynamic-routing"),
    (lambda: aggregate("transparent"), "'transparent' is not position-wise"),
    (lambda: aggregate(num_capsules=3), "3 capsules do not divide the width 4"),
    (lambda: aggregate(num_capsules=-2), "-2 capsules do not divide the width 4"),
    (lambda: aggregate(iterations=0), "iterations.*>= 1, not 0"),
    (lambda: aggregate(backend="fast"), "backend 'fast'"),
    (lambda: aggregate("linear", num_layers=0), "num_layers must be at least 1, not 0"),
    (lambda: aggregate("iterative", ffn_dim=0), "ffn_dim must be at least 1, not 0"),
    (lambda: aggregate("dynamic", ffn_dim=-1), "ffn_dim must be at least 1, not -1"),
    (lambda: LayerRouting(4, 3, "simple"), r"'simple'.*dynamic-routing, em-routing"),
    (lambda: TransparentMixture(3, 0), "num_decoder_layers must be at least 1, not 0"),
    (lambda: layer_connection("max", 4, 3, True), "'max' is not a connection; choose from dlcl"),
    (lambda: layer_connection("dlcl", 0, 3, True), "embed_dim must be at least 1, not 0"),
    (lambda: layer_connection("dense", 4, 0, True), "num_layers must be at least 1, not 0"),
    (lambda: layer_connection("attention-residuals", 4, 3, True, block=0), "block must .* not 0"),
    # calls: a missing layer is an error and not another aggregate
    (lambda: TransparentMixture(2, 1)([X[..., :4]] * 3), "built for 2 states and got 3"),
    *(
        (lambda mode=mode: aggregate(mode)([X[..., :4]] * 2), "built for 3 states and got 2")
        for mode in POSITION_WISE
    ),
    (
        lambda: CapsuleAttention(8, 2, vertical=True)(X, attn_mask=FUTURE),
        "use horizontal routing or none in a decoder",
    ),
    (
        lambda: CapsuleAttention(8, 2, vertical=True)(X[:1], cache={}),
        "use horizontal routing or none in a decoder",
    ),
    (
        lambda: CapsuleAttention(8, 2, horizontal=True)(X, cache={}),
        "one position per step, not 3: feed a prefix one",
    ),
    (lambda: HostedAttention(8, 2)(X, X, X, before_softmax=True), "before the softmax"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_it_is_refused_in_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda backend: HeadRouting(8, 2, "em", backend=backend),
        lambda backend: CapsuleAttention(8, 2, vertical=True, backend=backend),
        lambda backend: CapsuleAttention(8, 2, horizontal=True, backend=backend),
    ],
)
def test_the_backend_of_a_module_reaches_its_routing(make: Callable[[str], Any]) -> None:
    module = make("eager")
    module.backend = "no such backend"
    with pytest.raises(ValueError, match="no such backend"):
        module(X)
