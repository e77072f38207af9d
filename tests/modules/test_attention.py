"""Attention, to one source or several, against loops over sentences, heads and positions."""

import math
from typing import Any, Callable, Dict, List, Tuple

import pytest
import torch
from torch import nn

from capsnmt.models.attention import (
    HostedAttention,
    HostedBlockAttention,
    HostedMultiLayerAttention,
)
from capsnmt.modules.attention import Attention
from capsnmt.modules.dropout import Dropout
from capsnmt.modules.head_aggregation import HeadGate, HeadMixing, HeadRouting
from capsnmt.modules.masks import additive_mask
from capsnmt.modules.multi_layer_attention import VARIANTS
from capsnmt.modules.shortcuts import SHORTCUTS
from tests.modules.attention_oracle import (
    ATTENTIONS,
    FUTURE,
    HEADS,
    KINDS,
    LENGTH,
    PADDINGS,
    WIDTH,
    attention,
    inputs,
    multi_layer,
    oracle,
    plain,
)
from tests.modules.compare import assert_same, numbers

every_kind = pytest.mark.parametrize("kind", KINDS)


# self-attention; and attention to several encoder layers: variant, sources, kind, side of padding
CASES: Dict[str, Tuple[Callable[[], Tuple[Any, ...]], str]] = {
    **{
        f"{kind}, {side}": (lambda kind=kind: attention(kind), side)
        for kind in KINDS
        for side in PADDINGS
    },
    **{
        f"{variant}, {sources}, {kind}, {side}": (
            lambda given=(variant, sources, kind): (multi_layer(*given), *inputs(given[1])),
            side,
        )
        for variant in VARIANTS
        for sources, kind, side in [
            (1, "linear", "right"),
            (3, "linear", "left"),
            # H heads (M-00, M-01), or H of each source, of which one can attend for another
            (2, "gated", "right"),
            (2, "talking", "left"),
            (2, "composed", "left"),
        ]
    },
}


@pytest.mark.parametrize("name", CASES)
def test_output_weights_and_gradients_equal_the_loops(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, side = CASES[name]
    module, query, memory = make()
    given = query, memory, memory, PADDINGS[side]
    expected, expected_weights, *_ = oracle(module, query, memory, PADDINGS[side])
    for products in (False, True):  # torch's fused function, and probabilities
        monkeypatch.setattr(SHORTCUTS, "products_are_faster", lambda q, k, chosen=products: chosen)
        output, none = module.train()(*given, need_weights=False)
        assert none is None
        assert_same(output, expected, module, query, memory)
    read, mean = module(*given)
    assert_same(read, expected, module, query, memory)
    torch.testing.assert_close(mean, expected_weights.mean(0))
    torch.testing.assert_close(module(*given, need_head_weights=True)[1], expected_weights)


@every_kind
def test_causal_and_encoder_decoder_attention_equal_the_loops(kind: str) -> None:
    module, x = plain(kind), numbers(LENGTH, 2, WIDTH)
    for need_weights in (False, True):
        settings = {"attn_mask": FUTURE, "need_weights": need_weights}
        output, _ = module(x, x, x, **settings)
        torch.testing.assert_close(output, oracle(module, x, x, causal=True)[0])
        for padding in (PADDINGS["left"], PADDINGS["right"]):
            real = ~padding.t()  # a padded position may see nothing
            output, _ = module(x, x, x, padding, **settings)
            expected, *_ = oracle(module, x, x, padding, causal=True)
            torch.testing.assert_close(output[real], expected[real])
    module, query = plain(kind, cross=True), numbers(3, 2, WIDTH, seed=2)
    output, _ = module(query, x, x, PADDINGS["left"], static_kv=True)
    torch.testing.assert_close(output, oracle(module, query, x, PADDINGS["left"])[0])


def test_a_layer_attends_to_its_own_block_of_the_mixtures() -> None:
    mixtures, query = numbers(LENGTH, 2, 3 * WIDTH), numbers(3, 2, WIDTH, seed=2)
    whole = plain(cross=True)
    for block, mixture in enumerate(mixtures.split(WIDTH, dim=-1)):
        module = HostedBlockAttention(WIDTH, HEADS, block=block).double().eval()
        module.load_state_dict(whole.state_dict())
        expected, _ = whole(query, mixture, mixture, PADDINGS["left"])
        found, _ = module(query, mixtures, mixtures, PADDINGS["left"])
        torch.testing.assert_close(found, expected)


def sharper(self: Any, e: torch.Tensor, *_: Any) -> torch.Tensor:
    return 3 * e


def squared(self: Any, scores: torch.Tensor, needed: bool, mix: Any) -> Tuple[Any, Any]:
    weights = scores.softmax(-1).square()
    return weights, weights if needed else None


class Halved(Dropout):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


OWN: List[Dict[str, Any]] = [{"scores": sharper}, {"weights": squared}, {}]


@pytest.mark.parametrize("own", [*OWN, {"dropout_module": Halved()}], ids=" ".join)
def test_own_scores_weights_or_mixing_hold_in_every_pass(
    own: Dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's, or a map or dropout of the weights; torch's fused call knows nothing of them."""
    module, x = plain(), numbers(LENGTH, 2, WIDTH)
    before, _ = module(x, x, x, need_weights=False)
    module.__class__ = type("Own", (type(module),), own)
    if not own:
        module.weight_mixing = HeadMixing(HEADS).double()
        nn.init.normal_(module.weight_mixing.weight)
    expected, _ = module(x, x, x)
    assert not torch.allclose(expected, before)
    for training in (False, True):
        for products in (False, True):
            monkeypatch.setattr(SHORTCUTS, "products_are_faster", lambda q, k, p=products: p)
            found, _ = module.train(training)(x, x, x, need_weights=False)
            torch.testing.assert_close(found, expected)


# --- to several encoder layers


every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.mark.parametrize("source_width", [64, 96])
@every_variant
def test_every_source_starts_as_the_transformer(variant: str, source_width: int) -> None:
    """Uniform up to fairseq's bound, and no two sources the same."""
    width, sources = 64, 3
    module = HostedMultiLayerAttention(width, 4, sources, variant, source_dim=source_width)
    plain = HostedAttention(width, 4, source_dim=source_width, cross=True)
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
    width, sources = 128, 6
    query, memory = torch.randn(16, 8, width), torch.randn(2, 8, sources * width)
    module = HostedMultiLayerAttention(width, 4, sources, variant)
    plain = HostedAttention(width, 4, cross=True)
    for attending in (module, plain):
        nn.init.zeros_(attending.v_proj.bias)
        nn.init.zeros_(attending.q_proj.weight)  # else sharper joint weights average less
        nn.init.zeros_(attending.q_proj.bias)
    output, _ = module(query, memory, memory)
    reference, _ = plain(query, memory[..., :width], None)
    assert (output.var() / reference.var()).item() == pytest.approx(12 / 7, rel=0.3)


# --- what all attentions share


@every_kind
def test_a_row_with_nothing_to_attend_to_poisons_no_gradient(kind: str) -> None:
    module, x, left = plain(kind), numbers(LENGTH, 2, WIDTH), PADDINGS["left"]
    for need_weights in (False, True):
        # with a causal mask, a position padded on the left sees only padding
        output, _ = module(x, x, x, left, need_weights=need_weights, attn_mask=FUTURE)
        output[~left.T].sum().backward()
        assert x.grad.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


@every_kind
def test_a_mask_may_be_boolean_and_what_it_hides_is_never_left_to_a_flag(kind: str) -> None:
    module, x = plain(kind), numbers(LENGTH, 2, WIDTH)
    for hides in ({"attn_mask": -math.inf == FUTURE}, {"attn_mask": FUTURE, "is_causal": True}):
        for training in (True, False):
            found, _ = Attention.forward(module.train(training), x, **hides)
            torch.testing.assert_close(found, oracle(module, x, x, causal=True)[0])


@pytest.mark.parametrize(
    "refused", [{"value": FUTURE}, {"before_softmax": True}], ids=["value", "scores"]
)
def test_what_an_attention_of_fairseq_does_otherwise_is_refused(refused: Dict[str, Any]) -> None:
    module, x = plain(), numbers(LENGTH, 2, WIDTH)
    torch.testing.assert_close(module(x, x, x.clone()), module(x, x, x))
    with pytest.raises(ValueError, match="keys and values from one sequence"):
        module(x, x, **{"value": x, **refused})


@pytest.mark.parametrize("name", ATTENTIONS)
def test_no_sentences_have_no_output(name: str) -> None:
    module, query, memory = attention(name)
    given = query[:, :0], memory[..., :0, :]
    assert module(*given, given[1])[0].shape == given[0].shape
    state: Dict[str, Any] = {}  # of two steps
    for _ in range(2 if name in VARIANTS else 0):
        assert module(*given, given[1], None, state)[0].shape == given[0].shape
        module.reorder_incremental_state(state, torch.arange(0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_masked_row_stays_finite_below_low_scores(dtype: torch.dtype) -> None:
    """In fp16 the lowest number plus a score of -60 would be minus infinity."""
    scores = torch.full((1, 1, 2, 4), -60.0, dtype=dtype)
    mask = additive_mask(None, torch.ones(1, 4).bool(), like=scores)
    probabilities = torch.softmax(scores.float() + mask.float(), dim=-1)
    assert (scores + mask).isfinite().all()
    torch.testing.assert_close(probabilities, torch.full((1, 1, 2, 4), 0.25))


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_dropout_drops_in_training_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # or short sentences never meet torch's fused function
    monkeypatch.setattr(SHORTCUTS, "products_are_faster", lambda q, k: False)
    module, query, memory = attention(name, dropout=0.5)
    for training in (False, True):
        module.train(training)
        for need_weights in (False, True):
            one, other = (
                module(query, memory, memory, need_weights=need_weights)[0] for _ in range(2)
            )
            assert torch.equal(one, other) is not training


@pytest.mark.parametrize("module", [plain(), multi_layer("M-10", 2)], ids=["one", "several"])
def test_an_attention_whose_heads_are_routed_can_start_again(module: Any) -> None:
    """As whoever trains the upper layers anew calls it."""
    module.out_proj, before = HeadRouting(WIDTH, HEADS), module.q_proj.weight.tolist()
    module.reset_parameters()
    assert module.q_proj.weight.tolist() != before


def test_talking_heads_drop_the_weights_that_multiply_the_values() -> None:
    """A dropped weight of one head is not made up for by another's."""
    module, x, given = plain("talking", dropout=0.5), numbers(LENGTH, 2, WIDTH), []
    module.dropout_module.register_forward_hook(lambda _, args, out: given.append(args[0]))
    _, weights = module(x, x, x, need_head_weights=True)
    expected = torch.einsum("gh,hblk->bglk", module.weight_mixing.weight, weights)
    torch.testing.assert_close(given, [expected])


def test_a_gate_starts_around_one_half_as_further_columns_of_the_query_projection() -> None:
    gate = HeadGate(512, 8)
    queries = torch.nn.init.xavier_uniform_(torch.empty(512 + 8, 512), gain=1 / math.sqrt(2))
    torch.testing.assert_close(gate.projection.weight.std(), queries.std(), rtol=0.05, atol=0)
    gates = gate(torch.randn(50, 20, 512), torch.ones(20, 8, 50, 1))
    assert abs(gates.mean() - 0.5) < 0.02
    assert 0.1 < gates.std() < 0.25
