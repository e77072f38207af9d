"""Capsule-routing self-attention against the loops of Algorithms 2 and 3."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional

import pytest
import torch
from torch import Tensor

from capsnmt.models.attention import HostedAttention as Attention
from capsnmt.models.attention import HostedCapsuleAttention as CapsuleAttention
from capsnmt.modules.capsule_attention import ENCODER_ROUTINGS
from capsnmt.modules.disagreement import mean_overlap, record_disagreement
from capsnmt.modules.head_aggregation import HeadMixing
from capsnmt.routing import routing_backend
from tests.routing import oracles

LENGTH, HEADS, HEAD_WIDTH = 4, 2, 3
WIDTH = HEADS * HEAD_WIDTH
PADDINGS = {
    "none": None,
    "left": torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]).bool(),
    "right": torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]]).bool(),
}
ROUTED = ENCODER_ROUTINGS[1:]


def switches(routing: str) -> Dict[str, bool]:
    return {part: routing in (part, "both") for part in ("vertical", "horizontal")}


def attention(routing: str, heads: int = HEADS, **settings: Any) -> CapsuleAttention:
    torch.manual_seed(0)
    module = CapsuleAttention(heads * HEAD_WIDTH, heads, **switches(routing), **settings)
    for name, parameter in module.named_parameters():  # what starts at zero proves nothing there
        # the sums that W^up multiplies are large: keep its softmax off its flat ends
        torch.nn.init.normal_(parameter, std=0.1 if "head_weights" in name else 0.7)
    return module.double().eval()


def inputs(length: int = LENGTH, batch: int = 2, width: int = WIDTH, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(length, batch, width, dtype=torch.float64, generator=generator)


def future(length: int) -> Tensor:
    return torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)


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
    x = x.clone().requires_grad_()
    output, _ = module(x, x, x, padding, attn_mask=future(len(x)) if causal else None)
    output = output * real_positions(padding, *x.shape[:2]).unsqueeze(-1)
    expected = oracle(module, x, padding, causal)
    torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-11)
    probe = torch.randn_like(output)
    learned = [x, *module.parameters()]
    for one, other in zip(
        torch.autograd.grad((output * probe).sum(), learned),
        torch.autograd.grad((expected * probe).sum(), learned),
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("padding", PADDINGS.values(), ids=PADDINGS)
@pytest.mark.parametrize("routing", ROUTED)
def test_in_an_encoder_outputs_and_gradients_equal_the_algorithms(
    routing: str, padding: Optional[Tensor]
) -> None:
    assert_equals_the_oracle(attention(routing), inputs(), padding)


@pytest.mark.parametrize("padding", PADDINGS.values(), ids=PADDINGS)
def test_in_a_decoder_outputs_and_gradients_equal_the_algorithms(padding: Optional[Tensor]) -> None:
    assert_equals_the_oracle(attention("horizontal"), inputs(), padding, causal=True)


@pytest.mark.parametrize(
    ("heads", "length", "iterations"), [(1, 3, 3), (2, 1, 3), (2, 3, 1)], ids=["H=1", "L=1", "T=1"]
)
def test_the_limits_equal_the_algorithms(heads: int, length: int, iterations: int) -> None:
    module = attention("both", heads, iterations=iterations)
    assert_equals_the_oracle(module, inputs(length, width=heads * HEAD_WIDTH))
    module = attention("horizontal", heads, iterations=iterations)
    assert_equals_the_oracle(module, inputs(length, width=heads * HEAD_WIDTH), causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_without_routing_it_is_the_attention(causal: bool) -> None:
    routed, plain = attention("none"), Attention(WIDTH, HEADS).double().eval()
    plain.load_state_dict(routed.state_dict())
    x, mask = inputs(), future(LENGTH) if causal else None
    for need_weights in (False, True):
        for one, other in zip(
            routed(x, x, x, attn_mask=mask, need_weights=need_weights),
            plain(x, x, x, attn_mask=mask, need_weights=need_weights),
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize(("heads", "extra"), [(8, 72), (16, 272)], ids=["base", "big"])
def test_it_has_the_papers_parameters_and_no_others(heads: int, extra: int) -> None:
    """Over six encoder layers 432 and 1,632, the difference from the Transformer in Table 1."""
    width = 64 * heads
    plain = sum(p.numel() for p in Attention(width, heads).parameters())
    for routing, expected in {"none": 0, "vertical": extra, "horizontal": 0, "both": extra}.items():
        module = CapsuleAttention(width, heads, **switches(routing))
        assert sum(p.numel() for p in module.parameters()) - plain == expected


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("routing", "causal"), [("both", False), ("horizontal", True)])
def test_a_sentence_alone_has_the_output_that_it_has_in_a_batch(
    routing: str, causal: bool, side: str
) -> None:
    module, length, words = attention(routing), 7, 4
    x = inputs(length) * 3
    padding = torch.zeros(2, length, dtype=torch.bool)
    place = slice(length - words, length) if side == "left" else slice(0, words)
    padding[0] = True
    padding[0, place] = False
    alone = x[place, :1]
    together, weights = module(
        *(x, x, x, padding),
        attn_mask=future(length) if causal else None,
        need_head_weights=True,
    )
    expected, expected_weights = module(
        *(alone, alone, alone),
        attn_mask=future(words) if causal else None,
        need_head_weights=True,
    )
    torch.testing.assert_close(together[place, :1], expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        weights[:, :1, place, place], expected_weights, rtol=1e-10, atol=1e-12
    )


def test_no_position_of_a_decoder_reads_a_later_one() -> None:
    module, length = attention("horizontal"), 6
    x = inputs(length).requires_grad_()
    output, _ = module(x, x, x, attn_mask=future(length))
    for position in range(length):
        (gradient,) = torch.autograd.grad(output[position].sum(), x, retain_graph=True)
        assert not gradient[position + 1 :].any()
        assert gradient[: position + 1].abs().sum(-1).all()


@pytest.mark.parametrize("routing", ["vertical", "both"])
def test_a_causal_vertical_routing_is_refused(routing: str) -> None:
    module, x = attention(routing), inputs()
    with pytest.raises(ValueError, match="use horizontal routing or none in a decoder"):
        module(x, x, x, attn_mask=future(LENGTH))
    with pytest.raises(ValueError, match="use horizontal routing or none in a decoder"):
        module(x[:1], x[:1], x[:1], incremental_state={})


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
    expected = module.double().scores(scores.double(), None, None, None)
    assert routed.dtype == dtype
    assert expected.sub(scores.double()).abs().max() > 0.1  # there is something to get wrong
    half_a_step = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(routed.double(), expected, rtol=1.01 * half_a_step, atol=1e-4)


def test_talking_heads_mix_what_is_routed() -> None:
    module = attention("both")
    e = torch.randn(2, HEADS, 5, 5, dtype=torch.float64)
    routed = module.scores(e, None, None, None)
    module.score_mixing = HeadMixing(HEADS).double()
    torch.nn.init.normal_(module.score_mixing.weight)
    expected = torch.einsum("gh,bhlk->bglk", module.score_mixing.weight, routed)
    torch.testing.assert_close(module.scores(e, None, None, None), expected)


def test_autocast_leaves_the_head_weights_in_fp32() -> None:
    module = attention("both").float()
    e = torch.randn(2, HEADS, 10, 10)
    expected = module.scores(e, None, None, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(module.scores(e, None, None, None), expected)


def test_position_disagreement_reads_the_routed_weights() -> None:
    module, x = attention("both"), inputs()
    module.role = "enc-self"
    with record_disagreement(["position"], ["enc-self"]) as record:
        _, weights = module(x, x, x, need_head_weights=True)
    (measured,) = record.values["enc-self", "position"]
    torch.testing.assert_close(measured, mean_overlap(weights.transpose(0, 1)))


def test_attention_dropout_drops_in_training_only() -> None:
    module, x = attention("both", dropout=0.5), inputs()
    first, second = (module(x, x, x, need_weights=False)[0] for _ in range(2))
    assert torch.equal(first, second)
    module.train()
    first, second = (module(x, x, x, need_weights=False)[0] for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("routing", ["vertical", "horizontal"])
def test_the_backend_is_the_modules_own(routing: str) -> None:
    module, x = attention(routing, backend="eager"), inputs()
    with routing_backend("auto"):
        assert module(x, x, x)[0].isfinite().all()
    module.backend = "no such backend"
    with pytest.raises(ValueError, match="no such backend"):
        module(x, x, x)
