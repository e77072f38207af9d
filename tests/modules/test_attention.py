"""The shared attention against explicit loops over sentences, heads and positions."""

from __future__ import annotations

from typing import Optional, cast

import pytest
import torch
from torch import Tensor

from capsnmt.modules.attention import additive_mask
from tests.modules.attention_oracle import (
    HEAD_WIDTH,
    HEADS,
    KINDS,
    PADDINGS,
    WIDTH,
    attention,
    future,
    oracle,
)

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("padding", PADDINGS.values(), ids=PADDINGS)
@every_kind
def test_self_attention_and_its_gradients_equal_the_loops(
    kind: str, padding: Optional[Tensor], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsnmt.modules.plain_attention.PLAIN_UP_TO", 5 if plain else 4)
    module = attention(kind).train()
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    output, _ = module(x, x, x, key_padding_mask=padding, need_weights=False)
    expected = oracle(module, x, x, padding)
    torch.testing.assert_close(output, expected)
    probe = torch.randn_like(output)
    ours = torch.autograd.grad((output * probe).sum(), [x, *module.parameters()])
    theirs = torch.autograd.grad((expected * probe).sum(), [x, *module.parameters()])
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("need_weights", [False, True])
@every_kind
def test_causal_self_attention_equals_the_loops(kind: str, need_weights: bool) -> None:
    module = attention(kind)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    output, _ = module(x, x, x, attn_mask=future(5), need_weights=need_weights)
    torch.testing.assert_close(output, oracle(module, x, x, causal=True))


@every_kind
def test_encoder_decoder_attention_equals_the_loops(kind: str) -> None:
    module = attention(kind, cross=True)
    query, memory = (torch.randn(n, 2, WIDTH, dtype=torch.float64) for n in (3, 5))
    output, _ = module(query, memory, memory, PADDINGS["left"], static_kv=True)
    torch.testing.assert_close(output, oracle(module, query, memory, PADDINGS["left"]))


@every_kind
def test_step_by_step_equals_the_full_causal_pass(kind: str) -> None:
    module = attention(kind)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    state: dict = {}
    steps = [module(row, row, row, incremental_state=state)[0] for row in x.split(1)]
    torch.testing.assert_close(torch.cat(steps), module(x, x, x, attn_mask=future(5))[0])


@pytest.mark.parametrize("with_gradients", [False, True])
@every_kind
def test_decoding_reorders_what_it_has_read(kind: str, with_gradients: bool) -> None:
    """Also twice between two steps, and with fewer hypotheses each time."""
    module = attention(kind)
    orders = [[3, 3, 0, 1]], [[2, 0, 0], [1, 1]], []
    x, state = torch.randn(1, 4, WIDTH, dtype=torch.float64), cast("dict", {})
    with torch.set_grad_enabled(with_gradients):
        output, _ = module(x, x, x, incremental_state=state)
        for between in orders:
            for order in map(torch.tensor, between):
                module.reorder_incremental_state(state, order)
                x = x[:, order]
            word = torch.randn(1, x.size(1), WIDTH, dtype=torch.float64)
            output, _ = module(word, word, word, incremental_state=state)
            x = torch.cat([x, word])
            expected, _ = module(x, x, x, attn_mask=future(len(x)))
            torch.testing.assert_close(output, expected[-1:])
    assert output.requires_grad == with_gradients


@every_kind
def test_a_beam_shares_the_memory_of_its_sentence(kind: str) -> None:
    """Keys are given and kept once a sentence."""
    module, beam = attention(kind, cross=True), 3
    memory = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    query = torch.randn(1, 2 * beam, WIDTH, dtype=torch.float64)
    padding = PADDINGS["left"]
    expanded = memory.repeat_interleave(beam, dim=1), padding.repeat_interleave(beam, dim=0)
    expected, expected_weights = module(query, expanded[0], expanded[0], expanded[1])
    state: dict = {}
    for _ in range(2):  # the second step reads the cache
        output, weights = module(query, memory, memory, padding, state, static_kv=True)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(weights, expected_weights)


@every_kind
def test_weights_are_distributions_their_mean_or_each_heads_own(kind: str) -> None:
    module = attention(kind)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    _, mean = module(x, x, x, key_padding_mask=PADDINGS["left"])
    _, each = module(x, x, x, key_padding_mask=PADDINGS["left"], need_head_weights=True)
    assert each.shape == (HEADS, 2, 5, 5)
    torch.testing.assert_close(each.sum(-1), torch.ones_like(each[..., 0]))
    assert not each[:, PADDINGS["left"][:, None].expand(2, 5, 5)].any()
    torch.testing.assert_close(each.mean(0), mean)


@every_kind
def test_a_row_with_nothing_to_attend_to_poisons_no_gradient(kind: str) -> None:
    module = attention(kind)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    left = PADDINGS["left"]
    for need_weights in (False, True):
        # with a causal mask, a position padded on the left sees only padding
        output, _ = module(x, x, x, left, need_weights=need_weights, attn_mask=future(5))
        output[~left.T].sum().backward()
        assert x.grad.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_masked_row_stays_finite_below_low_scores(dtype: torch.dtype) -> None:
    """In fp16 the lowest number plus a score of -60 would be minus infinity."""
    scores = torch.full((1, 1, 2, 4), -60.0, dtype=dtype)
    mask = additive_mask(None, torch.ones(1, 4), like=scores)
    probabilities = torch.softmax(scores.float() + mask.float(), dim=-1)
    assert (scores + mask).isfinite().all()
    torch.testing.assert_close(probabilities, torch.full((1, 1, 2, 4), 0.25))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_that_nobody_reads_have_the_same_effect(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are rounded to the precision of the scores with or without a precise copy."""
    monkeypatch.setattr("capsnmt.modules.attention.plain_is_faster", lambda q, k: True)
    module = attention("dot").to(dtype).train()
    q, k, v = torch.randn(3, 2, HEADS, 5, HEAD_WIDTH).to(dtype)
    read, weights = module.attend(q, k, v, None, None, None, need_weights=True)
    unread, none = module.attend(q, k, v, None, None, None, need_weights=False)
    assert weights is not None
    assert weights.dtype == torch.float32
    assert none is None
    assert torch.equal(read, unread)


@every_kind
def test_attention_dropout_drops_in_training_only(kind: str) -> None:
    module = attention(kind, dropout=0.5)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    for need_weights in (False, True):
        first, second = (module(x, x, x, need_weights=need_weights)[0] for _ in range(2))
        assert torch.equal(first, second)
        module.train()
        first, second = (module(x, x, x, need_weights=need_weights)[0] for _ in range(2))
        assert not torch.equal(first, second)
        module.eval()


def test_scores_before_the_softmax_are_refused() -> None:
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    with pytest.raises(NotImplementedError, match="before the softmax"):
        attention()(x, x, x, before_softmax=True)
