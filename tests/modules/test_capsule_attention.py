"""Capsule-routing self-attention against the loops of Algorithms 2 and 3."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional

import pytest
import torch
from torch import Tensor

from capsnmt.models.attention import HostedCapsuleAttention as CapsuleAttention
from capsnmt.modules.capsule_attention import ENCODER_ROUTINGS
from capsnmt.modules.head_aggregation import HeadMixing
from tests.modules.attention_oracle import future
from tests.modules.compare import assert_same, numbers, randomised
from tests.routing import oracles

LENGTH, HEADS, HEAD_WIDTH = 4, 2, 3
WIDTH = HEADS * HEAD_WIDTH
PADDINGS = {
    "none": None,
    "left": torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]).bool(),
    "right": torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]]).bool(),
}


def switches(routing: str) -> Dict[str, bool]:
    return {part: routing in (part, "both") for part in ("vertical", "horizontal")}


def attention(routing: str, heads: int = HEADS, **settings: Any) -> CapsuleAttention:
    torch.manual_seed(0)
    module = CapsuleAttention(heads * HEAD_WIDTH, heads, **switches(routing), **settings)
    # the sums that W^up multiplies are large: keep its softmax off its flat ends
    return randomised(module, head_weights=0.1)


def real_positions(padding: Optional[Tensor], length: int, batch: int) -> Tensor:
    """[L, B], true where there is a word."""
    if padding is None:
        return torch.ones(length, batch, dtype=torch.bool)
    return ~padding.T


def routed_scores(
    module: CapsuleAttention, e: Tensor, real: Optional[Tensor], causal: bool
) -> List[Any]:
    """E' [H][L][K] of one sentence's cube e [H, L, K] (duan2020, section 3.2 and eq 8 to 14)."""
    H, L, K = e.shape
    routed = [[[e[h, q, k] for k in range(K)] for q in range(L)] for h in range(H)]
    if module.vertical:
        omega, b = oracles.vertical_routing(e, module.iterations, real, real)
        sums = [oracles.total(b[h, q] for q in range(L)) for h in range(H)]
        W_up, b_up = module.head_weights.weight, module.head_weights.bias
        Lambda = [  # eq 11
            oracles.total(W_up[h, j] * sums[j] for j in range(H)) + b_up[h] for h in range(H)
        ]
        for h, weight in enumerate(oracles.softmax(Lambda)):  # eq 10
            for q in range(L):
                for k in range(K):
                    routed[h][q][k] = routed[h][q][k] + weight * omega[q, k]
    if module.horizontal:
        omega = oracles.horizontal_routing(e, module.iterations, real, real, causal)
        for h in range(H):
            for q in range(L):
                for k in range(K):
                    routed[h][q][k] = routed[h][q][k] + omega[h, q, k]
    return routed


def oracle(
    module: CapsuleAttention, x: Tensor, padding: Optional[Tensor] = None, causal: bool = False
) -> Tensor:
    """The complete sublayer [L, B, d]; 0 at padding, where no output is read."""
    q, k, v = module.q_proj(x), module.k_proj(x), module.v_proj(x)
    length, batch, _ = x.shape
    heads = [slice(h * HEAD_WIDTH, (h + 1) * HEAD_WIDTH) for h in range(module.num_heads)]
    outputs = []
    for s in range(batch):
        real = None if padding is None else ~padding[s]
        rows = [
            [
                torch.stack([q[i, s, own].dot(k[j, s, own]) for j in range(length)])
                for i in range(length)
            ]
            for own in heads
        ]
        e = torch.stack([torch.stack(row) for row in rows]) / math.sqrt(HEAD_WIDTH)  # eq 5
        routed = routed_scores(module, e, real, causal)
        for i in range(length):
            if real is not None and not real[i]:
                outputs.append(torch.zeros(x.size(-1), dtype=x.dtype))
                continue
            seen = [
                j for j in range(length) if (real is None or real[j]) and not (causal and j > i)
            ]
            mixed = [
                sum(a * v[j, s, own] for a, j in zip(oracles.softmax([row[j] for j in seen]), seen))
                for own, row in zip(heads, (routed[h][i] for h in range(len(heads))))  # eq 2, 4
            ]
            outputs.append(module.out_proj(torch.cat(mixed)))
    return torch.stack(outputs).view(batch, length, -1).transpose(0, 1)


def assert_equals_the_oracle(
    module: CapsuleAttention, x: Tensor, padding: Optional[Tensor] = None, causal: bool = False
) -> None:
    output, _ = module(x, x, x, padding, attn_mask=future(len(x)) if causal else None)
    output = output * real_positions(padding, *x.shape[:2]).unsqueeze(-1)
    assert_same(output, oracle(module, x, padding, causal), module, x, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("padding", PADDINGS.values(), ids=PADDINGS)
@pytest.mark.parametrize("routing", [*ENCODER_ROUTINGS[1:], "decoder"])
def test_outputs_and_gradients_equal_the_algorithms(
    routing: str, padding: Optional[Tensor]
) -> None:
    causal = routing == "decoder"
    module = attention("horizontal" if causal else routing)
    assert_equals_the_oracle(module, numbers(LENGTH, 2, WIDTH), padding, causal)


@pytest.mark.parametrize(
    ("heads", "length", "iterations"), [(1, 3, 3), (2, 1, 3), (2, 3, 1)], ids=["H=1", "L=1", "T=1"]
)
def test_the_limits_equal_the_algorithms(heads: int, length: int, iterations: int) -> None:
    x = numbers(length, 2, heads * HEAD_WIDTH)
    assert_equals_the_oracle(attention("both", heads, iterations=iterations), x)
    assert_equals_the_oracle(attention("horizontal", heads, iterations=iterations), x, causal=True)


def test_head_weights_start_uniform_with_all_of_their_gradient() -> None:
    """Eight heads, 30 positions: a Glorot W^up would start at the flat end of its softmax."""
    torch.manual_seed(0)
    module = CapsuleAttention(8 * HEAD_WIDTH, 8, vertical=True)
    e = torch.randn(16, 8, 30, 30) * 2
    probe = torch.randn_like(e)

    def gradient() -> Tensor:
        capsules = module.vertical_capsules(e, None)
        (result,) = torch.autograd.grad((capsules * probe).sum(), module.head_weights.bias)
        return result.abs()

    capsules = module.vertical_capsules(e, None)
    torch.testing.assert_close(capsules, capsules[:, :1].expand_as(capsules))  # one weight for all
    fresh = gradient()
    torch.nn.init.xavier_uniform_(module.head_weights.weight)
    assert (fresh > 0).all()
    assert fresh.mean() > 3 * gradient().mean()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_scores_are_routed_in_fp32_and_rounded_once(dtype: torch.dtype) -> None:
    """At this length and these scores the sums of eq 11 are 3e5, more than fp16 can hold."""
    module = attention("both").to(dtype)
    torch.nn.init.normal_(module.head_weights.weight, std=3e-6)
    scores = (torch.randn(2, HEADS, 400, 400) * 60).to(dtype)
    routed = module.scores(scores, None, None, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # which lowers nothing
        assert torch.equal(module.scores(scores, None, None, None), routed)
    expected = module.double().scores(scores.double(), None, None, None)
    assert routed.dtype == dtype
    assert expected.sub(scores.double()).abs().max() > 0.1  # there is something to get wrong
    half_a_step = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(routed.double(), expected, rtol=1.01 * half_a_step, atol=1e-4)


def test_talking_heads_mix_what_is_routed() -> None:
    module = attention("both")
    e = torch.randn(2, HEADS, 5, 5, dtype=torch.float64)
    routed = module.scores(e, None, None, None)
    module.score_mixing = randomised(HeadMixing(HEADS))
    expected = torch.einsum("gh,bhlk->bglk", module.score_mixing.weight, routed)
    torch.testing.assert_close(module.scores(e, None, None, None), expected)
