"""What an operator or a module cannot have is one line that names it and what is allowed."""

from typing import Any, Callable, List, Tuple

import pytest
import torch

from capsnmt import routing
from capsnmt.modules.attention import Attention
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.disagreement import record_disagreement
from capsnmt.modules.drop_head import DropHead
from capsnmt.modules.head_aggregation import HeadComposition, HeadRouting
from capsnmt.modules.layer_aggregation import (
    POSITION_WISE,
    TransparentMixture,
    layer_aggregation,
    layer_connection,
)
from capsnmt.modules.layer_aggregation.routing import LayerRouting
from capsnmt.modules.multi_layer_attention import MultiLayerAttention
from tests.routing.operators import OPERATORS


def aggregate(mode: str = "em-routing", **setting: Any) -> Any:
    return layer_aggregation(
        **{"mode": mode, "embed_dim": 4, "num_layers": 3, "ffn_dim": 5, **setting}
    )


X = torch.zeros(3, 2, 8)
FUTURE = torch.full((3, 3), float("-inf")).triu(1)


VOTES, ONES = torch.zeros(2, 3, 4, 5), torch.ones(4)
BAD: List[Tuple[Callable[[], Any], str]] = [
    (lambda: routing.simple_routing(torch.zeros(3, 4)), r"votes must be .* not \[3, 4\]"),
    (lambda: routing.simple_routing(VOTES[:, :0]), r"I, N, D >= 1, not \[2, 0, 4, 5\]"),
    (lambda: routing.simple_routing(VOTES.long()), r"votes .* floating dtype, not torch.int64"),
    (lambda: routing.em_routing(VOTES, ONES[1:], ONES), r"beta_a must be \[N\] = \[4\]"),
    (
        lambda: routing.em_routing(VOTES, ONES, ONES, variance_floor=0.0),
        "variance_floor must be a number above 0, not 0.0",
    ),
    (lambda: routing.em_routing(VOTES, ONES, ONES.long()), r"beta_u must have a floating"),
    (
        lambda: routing.em_routing(VOTES, ONES, ONES, 3, torch.ones(2, 4)),
        r"input_activation must be .*\[2, 3\] or .*\[2, 3, 4\] here, not \[2, 4\]",
    ),
    (
        lambda: routing.em_routing(VOTES, ONES, ONES, 3, torch.ones(2, 3).bool()),
        r"input_activation must have a floating dtype",
    ),
    (
        lambda: routing.dynamic_routing(VOTES, 3, torch.ones(2, 4).bool()),
        r"input_mask must be \[..., I\] = \[2, 3\] here, not \[2, 4\]",
    ),
    (
        lambda: routing.dynamic_routing(VOTES, 3, None, torch.ones(2, 4)),
        r"output_mask must be boolean, true = real, not torch.float32; use .bool\(\)",
    ),
    (lambda: routing.vertical_routing(VOTES[0]), r"scores must be \[B, H, L, K\]"),
    (
        lambda: routing.vertical_routing(VOTES, 3, torch.ones(2, 5).bool()),
        r"query_mask must be \[B, L\] = \[2, 4\] here",
    ),
    (
        lambda: routing.horizontal_routing(VOTES, 3, None, torch.ones(2, 4).bool()),
        r"key_mask must be \[B, K\] = \[2, 5\] here",
    ),
    (
        lambda: routing.simple_routing(VOTES, backend="fused"),
        r"routing backend 'fused' is unknown; use one of auto, eager, compiled",
    ),
    (
        lambda: routing.squash(torch.tensor([3, 4])),
        r"s must have a floating dtype, not torch.int64",
    ),
    (lambda: Attention(8, 3), "3 heads do not divide the width 8"),
    (lambda: Attention(8, 0), "0 heads do not divide the width 8"),
    (lambda: DropHead(1.0), "p must be at least 0 and below 1, not 1.0"),
    (lambda: HeadComposition(8, 8, 2, rank=0), "rank must be at least 1, not 0"),
    (lambda: record_disagreement(["ouput"], ["enc-self"]), "'ouput' is unknown; choose .* output"),
    (lambda: HeadRouting(8, 2, "max", 0), "'max'.*simple, em"),
    (lambda: HeadRouting(8, 2, "em", 3), "3 capsules"),
    (lambda: HeadRouting(8, 2, "em", -2), "-2 capsules"),
    (lambda: HeadRouting(8, 2, iterations=0), "iterations.*>= 1, not 0"),
    (lambda: HeadRouting(8, 2, backend="fast"), "backend 'fast'"),
    (lambda: HeadRouting(8, 2, coefficients="drawn"), "'drawn'; give agreement, or, .* random"),
    (
        lambda: HeadRouting(8, 2, "simple", iterations=1, coefficients="random"),
        "^simple with 1 iterations has no coefficients 'random'; give .*EM routing with one",
    ),
    (lambda: aggregate(coefficients="random"), "^em-routing with 3 iterations has no"),
    (lambda: MultiLayerAttention(4, 2, 2, "M-02"), "'M-02'.*M-00, M-01, M-10, M-11"),
    (lambda: MultiLayerAttention(4, 2, 0, "M-00"), "num_sources must be .* 1, not 0"),
    (lambda: aggregate("max"), "'max'.*linear, iterative, dynamic, attention, dynamic-routing"),
    (lambda: aggregate("transparent"), "'transparent' is not position-wise"),
    (lambda: aggregate("linear", num_layers=0), "num_layers must be at least 1, not 0"),
    (lambda: aggregate("iterative", ffn_dim=0), "ffn_dim must be at least 1, not 0"),
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
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_it_is_refused_in_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("iterations", [0, -1, 2.5, True, "3", None])
@pytest.mark.parametrize("name", OPERATORS)
def test_iterations_must_be_a_positive_whole_number(name: str, iterations: Any) -> None:
    with pytest.raises(ValueError, match=r"whole number >= 1, not"):
        OPERATORS[name](VOTES, iterations)
