"""The shared attention against explicit loops over sentences, heads and positions."""

from __future__ import annotations

import math
from typing import List, Optional
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from capsnmt.modules.attention import Attention, additive_mask

WIDTH, HEADS = 12, 3
HEAD_WIDTH = WIDTH // HEADS


def attention(**settings: object) -> Attention:
    torch.manual_seed(0)
    module = Attention(WIDTH, HEADS, **settings).double().eval()
    for parameter in module.parameters():  # biases start at zero, where they prove nothing
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def oracle(
    module: Attention,
    query: Tensor,
    memory: Tensor,
    padding: Optional[Tensor] = None,
    causal: bool = False,
) -> List[List[Tensor]]:
    """Vaswani et al. 2017, section 3.2: for each sentence and position, the output vector."""
    q, k, v = module.q_proj(query), module.k_proj(memory), module.v_proj(memory)
    outputs = []
    for sentence in range(query.size(1)):
        outputs.append([])
        for position in range(query.size(0)):
            heads = []
            for head in range(HEADS):
                own = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
                weights = []
                for key in range(memory.size(0)):
                    score = q[position, sentence, own].dot(k[key, sentence, own])
                    hidden = causal and key > position
                    hidden = hidden or (padding is not None and bool(padding[sentence, key]))
                    weight = torch.exp(score / math.sqrt(HEAD_WIDTH))
                    weights.append(torch.zeros_like(weight) if hidden else weight)
                total = sum(weights)
                heads.append(sum(w / total * x for w, x in zip(weights, v[:, sentence, own])))
            outputs[-1].append(module.out_proj(torch.cat(heads)))
    return outputs


def stacked(outputs: List[List[Tensor]]) -> Tensor:
    return torch.stack([torch.stack(sentence) for sentence in outputs], dim=1)


def future(length: int) -> Tensor:
    return torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)


PADDINGS = {
    "none": None,
    "left": torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool(),
    "right": torch.tensor([[0, 0, 0, 0, 1], [0, 0, 1, 1, 1]]).bool(),
    "as numbers": torch.tensor([[0, 0, 0, 0, 1.0], [0, 0, 0, 1, 1]]),  # the host's cache has these
}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("padding", PADDINGS.values(), ids=PADDINGS)
def test_self_attention_and_its_gradients_equal_the_loops(
    padding: Optional[Tensor], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsnmt.modules.attention.PLAIN_UP_TO", 5 if plain else 4)
    fused = mock.Mock(wraps=F.scaled_dot_product_attention)
    monkeypatch.setattr(F, "scaled_dot_product_attention", fused)
    module = attention(self_attention=True)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    output, _ = module(x, x, x, key_padding_mask=padding, need_weights=False)
    assert fused.called != plain
    expected = stacked(oracle(module, x, x, padding))
    torch.testing.assert_close(output, expected)
    probe = torch.randn_like(output)
    ours = torch.autograd.grad((output * probe).sum(), [x, *module.parameters()])
    theirs = torch.autograd.grad((expected * probe).sum(), [x, *module.parameters()])
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("need_weights", [False, True])
def test_causal_self_attention_equals_the_loops(need_weights: bool) -> None:
    module = attention(self_attention=True)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    output, _ = module(x, x, x, attn_mask=future(5), need_weights=need_weights)
    torch.testing.assert_close(output, stacked(oracle(module, x, x, causal=True)))


def test_encoder_decoder_attention_equals_the_loops() -> None:
    module = attention(encoder_decoder_attention=True)
    query, memory = (torch.randn(n, 2, WIDTH, dtype=torch.float64) for n in (3, 5))
    output, _ = module(query, memory, memory, PADDINGS["left"], static_kv=True)
    torch.testing.assert_close(output, stacked(oracle(module, query, memory, PADDINGS["left"])))


def test_step_by_step_equals_the_full_causal_pass() -> None:
    module = attention(self_attention=True)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    state: dict = {}
    steps = [module(row, row, row, incremental_state=state)[0] for row in x.split(1)]
    torch.testing.assert_close(torch.cat(steps), module(x, x, x, attn_mask=future(5))[0])


def test_a_beam_shares_the_memory_of_its_sentence() -> None:
    """Keys are kept once a sentence, whether the host expands its output to the beam or not."""
    module, beam = attention(encoder_decoder_attention=True), 3
    memory = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    query = torch.randn(1, 2 * beam, WIDTH, dtype=torch.float64)
    padding = PADDINGS["left"]
    expanded = memory.repeat_interleave(beam, dim=1), padding.repeat_interleave(beam, dim=0)
    expected, expected_weights = module(query, expanded[0], expanded[0], expanded[1])
    module.beam_size = beam
    for keys, mask in (expanded, (memory, padding)):
        state: dict = {}
        for _ in range(2):  # the second step reads the cache
            output, weights = module(query, keys, keys, mask, state, static_kv=True)
            torch.testing.assert_close(output, expected)
            torch.testing.assert_close(weights, expected_weights)
        assert module._get_input_buffer(state)["prev_key"].shape == (2, HEADS, 5, HEAD_WIDTH)


def test_weights_are_a_mean_over_heads_or_each_heads_own() -> None:
    module = attention(self_attention=True)
    x = torch.randn(5, 2, WIDTH, dtype=torch.float64)
    _, mean = module(x, x, x, key_padding_mask=PADDINGS["left"])
    _, each = module(x, x, x, key_padding_mask=PADDINGS["left"], need_head_weights=True)
    assert each.shape == (HEADS, 2, 5, 5)
    torch.testing.assert_close(each.sum(-1), torch.ones_like(each[..., 0]))
    assert not each[:, PADDINGS["left"][:, None].expand(2, 5, 5)].any()
    torch.testing.assert_close(each.mean(0), mean)


def test_a_row_with_nothing_to_attend_to_poisons_no_gradient() -> None:
    module = attention(self_attention=True)
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


def test_attention_dropout_drops_in_training_only() -> None:
    module = attention(self_attention=True, dropout=0.5)
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
        attention(self_attention=True)(x, x, x, before_softmax=True)
