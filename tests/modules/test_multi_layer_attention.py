"""Multi-layer attention against the equations of ampomah2020, one source and head at a time."""

from __future__ import annotations

from typing import Dict, List, Optional

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from capsnmt.modules.disagreement import mean_cosine, mean_overlap, record_disagreement
from capsnmt.modules.multi_layer_attention import VARIANTS, SourceLinear
from tests.modules.multi_layer_oracle import (
    BATCH,
    JOINT,
    KEYS,
    LENGTH,
    PADDINGS,
    SOURCE_WIDTH,
    SUMS,
    attention,
    inputs,
    oracle,
)

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.mark.parametrize("padding", PADDINGS.values(), ids=PADDINGS)
@pytest.mark.parametrize("num_sources", [1, 2, 3])
@every_variant
def test_the_output_and_its_gradients_equal_the_equations(
    variant: str, num_sources: int, padding: Optional[Tensor]
) -> None:
    module = attention(variant, num_sources)
    query, memory = inputs(num_sources)
    expected, _ = oracle(module, query, memory, padding)
    probe = torch.randn_like(expected)
    learned = [query, memory, *module.parameters()]
    theirs = torch.autograd.grad((expected * probe).sum(), learned)
    for need_weights in (False, True):  # the fused kernel, and the probabilities
        output, _ = module(query, memory, memory, padding, need_weights=need_weights)
        torch.testing.assert_close(output, expected)
        ours = torch.autograd.grad((output * probe).sum(), learned)
        for one, other in zip(ours, theirs):
            torch.testing.assert_close(one, other)


@every_variant
def test_a_masked_source_is_a_source_of_zeros(variant: str) -> None:
    module = attention(variant, 3)
    query, memory = inputs(3)
    unmasked, _ = module(query, memory, memory)
    for source in range(3):
        masked = memory.detach().clone()
        masked[..., source * SOURCE_WIDTH : (source + 1) * SOURCE_WIDTH] = 0
        output, _ = module(query, masked, masked, PADDINGS["left"])
        torch.testing.assert_close(output, oracle(module, query, masked, PADDINGS["left"])[0])
        assert not torch.allclose(module(query, masked, masked)[0], unmasked)


@pytest.mark.parametrize("kind", ["gated", "talking"])
@every_variant
def test_the_heads_of_the_attention_call_are_gated_or_talk(variant: str, kind: str) -> None:
    """H heads (M-00, M-01), or H of each source, of which one can attend for another."""
    module = attention(variant, 2, kind)
    query, memory = inputs(2)
    expected, each = oracle(module, query, memory, PADDINGS["left"])
    probe = torch.randn_like(expected)
    learned = [query, memory, *module.parameters()]
    theirs = torch.autograd.grad((expected * probe).sum(), learned)
    for need_weights in (False, True):
        output, _ = module(query, memory, memory, PADDINGS["left"], need_weights=need_weights)
        torch.testing.assert_close(output, expected)
        ours = torch.autograd.grad((output * probe).sum(), learned)
        for one, other in zip(ours, theirs):
            torch.testing.assert_close(one, other)
    _, weights = module(query, memory, memory, PADDINGS["left"], need_head_weights=True)
    torch.testing.assert_close(weights, each[0] if variant in JOINT else each.flatten(0, 1))


@every_variant
def test_weights_are_those_of_each_head_of_the_call_and_their_mean_a_distribution(
    variant: str,
) -> None:
    module = attention(variant, 3)
    query, memory = inputs(3)
    _, expected = oracle(module, query, memory, PADDINGS["left"])
    _, mean = module(query, memory, memory, PADDINGS["left"])
    _, each = module(query, memory, memory, PADDINGS["left"], need_head_weights=True)
    # the sources share their weights, or are one after the other
    torch.testing.assert_close(each, expected[0] if variant in JOINT else expected.flatten(0, 1))
    torch.testing.assert_close(mean, each.mean(0))
    torch.testing.assert_close(mean.sum(-1), torch.ones_like(mean[..., 0]))
    assert not mean[PADDINGS["left"][:, None].expand_as(mean)].any()


@pytest.mark.parametrize("variant", SUMS)
def test_summed_equals_concatenated_contexts_with_equal_projections(variant: str) -> None:
    summed, other = attention(variant, 3), attention(variant[:3] + "0", 3)
    state = summed.state_dict()
    state["out_proj.weight"] = state["out_proj.weight"].repeat(1, 3)
    if variant == "M-01":
        blocks = state["v_proj.weight"].split(SOURCE_WIDTH, dim=1)
        state["v_proj.weight"] = torch.cat(blocks)
        state["v_proj.bias"] = (state["v_proj.bias"] / 3).repeat(3)
    other.load_state_dict(state)
    query, memory = inputs(3)
    torch.testing.assert_close(summed(query, memory, memory)[0], other(query, memory, memory)[0])


@pytest.mark.parametrize("num_sources", [1, 3])
def test_a_source_linear_is_one_linear_map_per_source(num_sources: int) -> None:
    torch.manual_seed(0)
    module = SourceLinear(num_sources, 5, 2)
    assert module.weight.shape == (2 * num_sources, 5)
    x = torch.randn(3, 4, num_sources * 5)
    maps = zip(x.split(5, dim=-1), module.weight.split(2), module.bias.split(2))
    expected = torch.cat([F.linear(source, weight, bias) for source, weight, bias in maps], dim=-1)
    torch.testing.assert_close(module(x), expected)
    torch.testing.assert_close(module(x[:, ::2]), expected[:, ::2])  # as a beam is reduced


@every_variant
def test_a_beam_shares_memory_that_is_projected_once_a_sentence(variant: str) -> None:
    module, beam = attention(variant, 3), 3
    query, _ = inputs(3, BATCH * beam, length=3)
    _, memory = inputs(3)
    padding = PADDINGS["left"]
    expanded = memory.repeat_interleave(beam, dim=1), padding.repeat_interleave(beam, dim=0)
    expected, expected_weights = module(query, expanded[0], expanded[0], expanded[1])
    projected: Dict[str, List[torch.Size]] = {"k_proj": [], "v_proj": []}
    for name, inputs_seen in projected.items():
        getattr(module, name).register_forward_pre_hook(
            lambda _, args, seen=inputs_seen: seen.append(args[0].shape)
        )
    state: dict = {}
    for step, row in enumerate(query.split(1)):
        output, weights = module(row, memory, memory, padding, state, static_kv=True)
        torch.testing.assert_close(output, expected[step : step + 1])
        torch.testing.assert_close(weights, expected_weights[:, step : step + 1])
        module.reorder_incremental_state(state, torch.tensor([0, 0, 2, 3, 5, 5]))
    assert all(seen == [memory.shape] for seen in projected.values())


@every_variant
def test_sentences_that_end_leave_the_cache_of_the_others(variant: str) -> None:
    module, beam = attention(variant, 2), 2
    query, _ = inputs(2, BATCH * beam, length=1)
    _, memory = inputs(2)
    state: dict = {}
    module(query, memory, memory, PADDINGS["right"], state, static_kv=True)
    second = torch.tensor([3, 2])  # the hypotheses of the second sentence, exchanged
    module.reorder_incremental_state(state, second)
    output, weights = module(
        query[:, second], memory[:, 1:], memory[:, 1:], None, state, static_kv=True
    )
    fresh, fresh_weights = module(
        query[:, second], memory[:, 1:], memory[:, 1:], PADDINGS["right"][1:]
    )
    torch.testing.assert_close(output, fresh)
    torch.testing.assert_close(weights, fresh_weights)


@every_variant
def test_disagreement_is_between_the_heads_of_the_call(variant: str) -> None:
    module = attention(variant, 3)
    module.role = "enc-dec"
    query, memory = inputs(3)
    with record_disagreement(("subspace", "position", "output"), ("enc-dec",)) as record:
        module(query, memory, memory, PADDINGS["left"], need_weights=False)
    q, k, v, mask = module.project(query, memory, PADDINGS["left"], None)
    heads, weights = module.attend(q, k, v, None, mask, None, True)
    for term, value, positions in (
        ("subspace", mean_cosine(v), KEYS),
        ("position", mean_overlap(weights), LENGTH),
        ("output", mean_cosine(heads), LENGTH),
    ):
        (measured,) = record.values["enc-dec", term]
        assert measured.shape == (BATCH, positions)
        torch.testing.assert_close(measured, value)


@every_variant
def test_attention_dropout_drops_in_training_only(variant: str) -> None:
    module = attention(variant, 2, dropout=0.5)
    query, memory = inputs(2)
    for need_weights in (False, True):
        for training in (False, True):
            module.train(training)
            first, second = (
                module(query, memory, memory, need_weights=need_weights)[0] for _ in range(2)
            )
            assert torch.equal(first, second) is not training


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_variant
def test_autocast_stays_close_to_full_precision(variant: str, dtype: torch.dtype) -> None:
    module = attention(variant, 3).float()
    query, memory = (x.detach().float() for x in inputs(3))
    expected, _ = module(query, memory, memory, PADDINGS["left"])
    for need_weights in (False, True):
        module.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            output, _ = module(query, memory, memory, PADDINGS["left"], need_weights=need_weights)
            assert module.k_proj(memory).dtype == dtype
        torch.testing.assert_close(output.float(), expected, atol=0.1, rtol=0.1)
        output.float().square().sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
