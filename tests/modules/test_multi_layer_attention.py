"""Multi-layer attention against the equations of ampomah2020, one source and head at a time."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.modules.attention import Attention
from capsnmt.modules.disagreement import mean_cosine, mean_overlap, record_disagreement
from capsnmt.modules.multi_layer_attention import VARIANTS, MultiLayerAttention, SourceLinear

WIDTH, HEADS, SOURCE_WIDTH = 4, 2, 6
HEAD_WIDTH = WIDTH // HEADS
LENGTH, KEYS, BATCH = 2, 4, 2
JOINT, SUMS = ("M-00", "M-01"), ("M-01", "M-11")

PADDINGS = {
    "none": None,
    "left": torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]).bool(),
    "right": torch.tensor([[0, 0, 0, 0], [0, 1, 1, 1]]).bool(),
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def attention(variant: str, num_sources: int, **settings: Any) -> MultiLayerAttention:
    torch.manual_seed(0)
    settings = {"source_dim": SOURCE_WIDTH, **settings}
    module = MultiLayerAttention(WIDTH, HEADS, num_sources, variant, **settings).double().eval()
    for parameter in module.parameters():  # out_proj's bias starts at zero, where it proves nothing
        nn.init.normal_(parameter, std=0.5)
    return module


def inputs(num_sources: int, batch: int = BATCH, length: int = LENGTH) -> Tuple[Tensor, Tensor]:
    """A query ``[L, B, d]`` and sources ``[K, B, n * source_dim]``."""
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(length, batch, WIDTH, dtype=torch.float64, generator=generator)
    width = num_sources * SOURCE_WIDTH
    memory = torch.randn(KEYS, batch, width, dtype=torch.float64, generator=generator)
    return query.requires_grad_(), memory.requires_grad_()


class Projections(NamedTuple):
    """W^q, W^k, W^v of one source, with their biases."""

    q: Tuple[Tensor, Tensor]
    k: Tuple[Tensor, Tensor]
    v: Tuple[Tensor, Tensor]


def projections(module: MultiLayerAttention, source: int) -> Projections:
    rows = slice(source * WIDTH, (source + 1) * WIDTH)
    columns = slice(source * SOURCE_WIDTH, (source + 1) * SOURCE_WIDTH)
    if module.variant == "M-01":  # only the sum of the sources' biases can be told: shares of it
        v = module.v_proj.weight[:, columns], module.v_proj.bias / module.num_sources
    else:
        v = module.v_proj.weight[rows], module.v_proj.bias[rows]
    return Projections(
        (module.q_proj.weight[rows], module.q_proj.bias[rows]),
        (module.k_proj.weight[rows], module.k_proj.bias[rows]),
        v,
    )


def softmax(scores: List[Tensor], hidden: List[bool]) -> List[Tensor]:
    exps = [torch.exp(a) * (0 if hide else 1) for a, hide in zip(scores, hidden)]
    return [x / sum(exps) for x in exps]


def oracle(
    module: MultiLayerAttention, query: Tensor, memory: Tensor, padding: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor]:
    """Equations 7 to 12: outputs ``[L, B, d]`` and weights ``[n, H, B, L, K]`` of each source."""
    n, joint = module.num_sources, module.variant[2] == "0"
    maps = [projections(module, i) for i in range(n)]
    outputs, all_weights = {}, {}
    for b in range(query.size(1)):
        hidden = [padding is not None and bool(padding[b, k]) for k in range(memory.size(0))]
        f = [memory[:, b, i * SOURCE_WIDTH : (i + 1) * SOURCE_WIDTH] for i in range(n)]
        for l in range(query.size(0)):
            c: List[List[Tensor]] = [[] for _ in range(n)]
            for h in range(HEADS):
                own = slice(h * HEAD_WIDTH, (h + 1) * HEAD_WIDTH)
                a, V = [], []
                for i in range(n):  # eq 7
                    (Wq, bq), (Wk, bk), (Wv, bv) = maps[i]
                    Q = (Wq @ query[l, b] + bq)[own]
                    K = [(Wk @ x + bk)[own] for x in f[i]]
                    V.append([(Wv @ x + bv)[own] for x in f[i]])
                    a.append([Q.dot(key) / math.sqrt(HEAD_WIDTH) for key in K])
                for i in range(n):
                    scores = [sum(of_key) for of_key in zip(*a)] if joint else a[i]  # eq 9, else 8
                    weights = softmax(scores, hidden)
                    c[i].append(sum(w * value for w, value in zip(weights, V[i])))  # eq 11
                    all_weights[i, h, b, l] = torch.stack(weights)
            contexts = [torch.cat(heads) for heads in c]
            Wo, bo = module.out_proj.weight, module.out_proj.bias
            joined = sum(contexts) if module.variant[3] == "1" else torch.cat(contexts)  # eq 12
            outputs[l, b] = Wo @ joined + bo
    L, B = query.shape[:2]
    output = torch.stack([torch.stack([outputs[l, b] for b in range(B)]) for l in range(L)])
    flat = torch.stack(
        [
            all_weights[i, h, b, l]
            for i in range(n)
            for h in range(HEADS)
            for b in range(B)
            for l in range(L)
        ]
    )
    return output, flat.view(n, HEADS, B, L, -1)


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
    whole, _ = module(query, memory, memory)
    for source in range(3):
        masked = memory.detach().clone()
        masked[..., source * SOURCE_WIDTH : (source + 1) * SOURCE_WIDTH] = 0
        output, _ = module(query, masked, masked, PADDINGS["left"])
        torch.testing.assert_close(output, oracle(module, query, masked, PADDINGS["left"])[0])
        assert not torch.allclose(module(query, masked, masked)[0], whole)


@every_variant
def test_weights_are_those_of_each_head_of_the_call_and_their_mean_a_distribution(
    variant: str,
) -> None:
    module = attention(variant, 3)
    query, memory = inputs(3)
    _, expected = oracle(module, query, memory, PADDINGS["left"])
    _, mean = module(query, memory, memory, PADDINGS["left"])
    _, each = module(query, memory, memory, PADDINGS["left"], need_head_weights=True)
    # the sources share their weights, or follow one another
    torch.testing.assert_close(each, expected[0] if variant in JOINT else expected.flatten(0, 1))
    torch.testing.assert_close(mean, each.mean(0))
    torch.testing.assert_close(mean.sum(-1), torch.ones_like(mean[..., 0]))
    assert not mean[PADDINGS["left"][:, None].expand_as(mean)].any()


@every_variant
def test_summed_equals_concatenated_contexts_whose_projections_are_alike(variant: str) -> None:
    if variant not in SUMS:
        variant = {"M-00": "M-01", "M-10": "M-11"}[variant]
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


@pytest.mark.parametrize("source_width", [WIDTH, SOURCE_WIDTH])
@every_variant
def test_one_source_is_the_transformer(variant: str, source_width: int) -> None:
    """Same names, shapes and, from the same seed, same numbers; a stock state dict loads."""
    torch.manual_seed(0)
    module = MultiLayerAttention(WIDTH, HEADS, 1, variant, source_dim=source_width)
    torch.manual_seed(0)
    plain = Attention(
        WIDTH, HEADS, kdim=source_width, vdim=source_width, encoder_decoder_attention=True
    )
    ours, theirs = module.state_dict(), plain.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for parameter in plain.parameters():
        nn.init.normal_(parameter)
    module.load_state_dict(plain.state_dict())
    query, memory = torch.randn(LENGTH, BATCH, WIDTH), torch.randn(KEYS, BATCH, source_width)
    for need_weights in (False, True):
        for one, other in zip(
            module(query, memory, memory, PADDINGS["left"], need_weights=need_weights),
            plain(query, memory, memory, PADDINGS["left"], need_weights=need_weights),
        ):
            assert one is other is None or torch.equal(one, other)


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
def test_whatever_the_sources_it_is_one_call(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    fused = F.scaled_dot_product_attention

    def counted(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
        shapes.append((tuple(q.shape), tuple(v.shape)))
        return fused(q, k, v, **settings)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    module = attention(variant, 3)
    query, memory = inputs(3)
    module(query, memory, memory, need_weights=False)
    heads, width = (HEADS, 3 * HEAD_WIDTH) if variant in JOINT else (3 * HEADS, HEAD_WIDTH)
    value_width = HEAD_WIDTH if variant == "M-01" else width
    assert shapes == [((BATCH, heads, LENGTH, width), (BATCH, heads, KEYS, value_width))]


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
    module.set_beam_size(beam)
    for keys, mask in (expanded, (memory, padding)):
        state: dict = {}
        for seen in projected.values():
            seen.clear()
        for step, row in enumerate(query.split(1)):
            output, weights = module(row, keys, keys, mask, state, static_kv=True)
            torch.testing.assert_close(output, expected[step : step + 1])
            torch.testing.assert_close(weights, expected_weights[:, step : step + 1])
            # hypotheses that change places within a beam leave the cache as it is
            cached = module._get_input_buffer(state)["prev_key"]
            module.reorder_incremental_state(state, torch.tensor([0, 0, 2, 3, 5, 5]))
            assert module._get_input_buffer(state)["prev_key"] is cached
        assert all(seen == [memory.shape] for seen in projected.values())


@every_variant
def test_sentences_that_end_leave_the_cache_of_the_others(variant: str) -> None:
    module, beam = attention(variant, 2), 2
    query, _ = inputs(2, BATCH * beam, length=1)
    _, memory = inputs(2)
    module.set_beam_size(beam)
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
    sizes = {name: x.shape[:3] for name, x in module._get_input_buffer(state).items()}
    heads = HEADS if variant in JOINT else 2 * HEADS
    assert sizes["prev_key"] == sizes["prev_value"] == (1, heads, KEYS)


@pytest.mark.parametrize("source_width", [64, 96])
@every_variant
def test_every_source_starts_as_the_transformer(variant: str, source_width: int) -> None:
    """Uniform up to fairseq's bound, and no two sources the same."""
    width, sources = 64, 3
    torch.manual_seed(0)
    module = MultiLayerAttention(width, 4, sources, variant, source_dim=source_width)
    plain = Attention(
        width, 4, kdim=source_width, vdim=source_width, encoder_decoder_attention=True
    )
    for name in ("q_proj", "k_proj", "v_proj"):
        one, stock = getattr(module, name).weight, getattr(plain, name).weight
        columns = variant == "M-01" and name == "v_proj"
        blocks = one.split(source_width, dim=1) if columns else one.split(width)
        assert len(blocks) == sources
        for block in blocks:
            assert block.shape == stock.shape
            largest, bound = block.abs().max().item(), stock.abs().max().item()
            assert largest == pytest.approx(bound, rel=0.01)
        assert not torch.equal(blocks[0], blocks[1])
    assert not module.out_proj.bias.any()


@every_variant
def test_the_output_starts_as_large_as_the_transformers(variant: str) -> None:
    """Its variance is 2n / (n + 1) times as large: 1.7 at n = 6, where blocks alone give 6."""
    torch.manual_seed(0)
    width, sources = 128, 6
    query, memory = torch.randn(16, 8, width), torch.randn(2, 8, sources * width)
    module = MultiLayerAttention(width, 4, sources, variant)
    plain = Attention(width, 4, encoder_decoder_attention=True)
    for attending in (module, plain):
        nn.init.zeros_(attending.v_proj.bias)
        nn.init.zeros_(attending.q_proj.weight)  # else sharper joint weights average less
        nn.init.zeros_(attending.q_proj.bias)
    output, _ = module(query, memory, memory)
    reference, _ = plain(query, memory[..., :width], None)
    assert (output.var() / reference.var()).item() == pytest.approx(12 / 7, rel=0.3)


@every_variant
def test_out_proj_is_a_module_that_another_may_replace(variant: str) -> None:
    module = attention(variant, 3)
    query, memory = inputs(3)
    expected, _ = module(query, memory, memory)
    projection, module.out_proj = module.out_proj, nn.Identity()
    features, _ = module(query, memory, memory)
    assert features.size(-1) == projection.in_features == (1 if variant in SUMS else 3) * WIDTH
    torch.testing.assert_close(projection(features), expected)


@every_variant
def test_disagreement_is_between_the_heads_of_the_call(variant: str) -> None:
    module = attention(variant, 3)
    module.role = "enc-dec"
    query, memory = inputs(3)
    with record_disagreement(("subspace", "position", "output"), ("enc-dec",)) as record:
        module(query, memory, memory, PADDINGS["left"], need_weights=False)
    q, k, v, mask = module.project(query, memory, memory, PADDINGS["left"], None, True)
    heads, weights = module.attend(q, k, v, None, mask, None, True)
    for term, value, positions in (
        ("subspace", mean_cosine(v), KEYS),
        ("position", mean_overlap(weights), LENGTH),
        ("output", mean_cosine(heads), LENGTH),
    ):
        (measured,) = record.values["enc-dec", term]
        assert measured.shape == (BATCH, positions)
        torch.testing.assert_close(measured, value)


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


@every_variant
def test_quantisation_noise_reaches_every_projection(variant: str) -> None:
    module = attention(variant, 2, q_noise=0.5, qn_block_size=2)
    before = {name: x.clone() for name, x in module.state_dict().items()}
    query, memory = inputs(2)
    module(query, memory, memory)
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())
    module.train()
    module(query, memory, memory)
    noisy = {name for name, x in module.state_dict().items() if not torch.equal(x, before[name])}
    assert noisy == {name for name in before if name.endswith("weight")}


# Table 6 prints totals rounded to 0.1M: a difference of two of them is right to within 0.1
TABLE_6 = {
    "M-00": (6.3, 12.6, 18.9, 25.2, 31.5),
    "M-01": (4.7, 9.5, 14.2, 18.9, 23.6),
    "M-10": (6.3, 12.6, 18.9, 25.2, 31.5),
    "M-11": (4.7, 9.5, 14.2, 18.9, 23.6),
}


@every_variant
def test_parameters_of_table_6(variant: str) -> None:
    """Each further source costs q, k, v and, where contexts are concatenated, its part of W^o."""
    d, layers = 512, 6
    weights = 3 if variant in SUMS else 4
    biases = 2 if variant == "M-01" else 3  # a sum of values has one bias
    with torch.device("meta"):
        plain = Attention(d, 8, encoder_decoder_attention=True)
        counts = [
            sum(p.numel() for p in MultiLayerAttention(d, 8, n, variant).parameters())
            for n in range(2, 7)
        ]
    baseline = sum(p.numel() for p in plain.parameters())
    for n, count, printed in zip(range(2, 7), counts, TABLE_6[variant]):
        extra = layers * (count - baseline)
        assert extra == layers * (n - 1) * (weights * d * d + biases * d)
        assert extra / 1e6 == pytest.approx(printed, abs=0.1)


@pytest.mark.parametrize(
    ("variant", "num_sources", "message"),
    [("M-02", 2, "'M-02'.*M-00, M-01, M-10, M-11"), ("M-00", 0, "0 sources.*1 or more")],
)
def test_a_bad_setting_is_named(variant: str, num_sources: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiLayerAttention(WIDTH, HEADS, num_sources, variant)
