"""Disagreement of heads: what of each attention is measured, when, and in which precision."""

from contextlib import suppress
from typing import Any, Callable, Tuple

import pytest
import torch
from torch import Tensor

from capsnmt.modules.disagreement import (
    TERMS,
    mean_cosine,
    mean_dependence,
    mean_overlap,
    mean_squared_cosine,
    record_disagreement,
)
from capsnmt.modules.shortcuts import SHORTCUTS
from tests.counting import Operations
from tests.modules.attention_oracle import ATTENTIONS, FUTURE, PADDINGS, attention, oracle

HEADS = 4


def vectors() -> Tensor:
    return torch.randn(2, HEADS, 3, 5, dtype=torch.float64)


of_vectors = pytest.mark.parametrize("measure", [mean_cosine, mean_squared_cosine, mean_dependence])


@of_vectors
def test_a_vector_without_direction_has_cosine_zero_and_no_gradient(
    measure: Callable[[Tensor], Tensor],
) -> None:
    x = vectors()
    x[0, 0], x[1, 1] = 0, 1e-20
    x.requires_grad_()
    measured = measure(x)
    (gradient,) = torch.autograd.grad(measured.sum(), x)
    assert gradient.isfinite().all()
    assert not gradient[0, 0].any()
    assert not gradient[1, 1].any()
    assert gradient[0, 1].any()
    others = measure(x[:1, 1:]) * ((HEADS - 1) / HEADS) ** 2
    torch.testing.assert_close(measured[:1], others)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@of_vectors
def test_half_precision_is_measured_in_single_precision(
    measure: Callable[[Tensor], Tensor], dtype: torch.dtype, scale: float
) -> None:
    """fp16 squares overflow beyond 256 and vanish below 2e-4; the measure must do neither."""
    x = (vectors() * scale).to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        measured = measure(x)
    assert measured.dtype == torch.float32
    torch.testing.assert_close(measured.double(), measure(x.double()), rtol=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(measured.sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_terms_are_between_the_heads_of_the_call_before_a_gate(name: str) -> None:
    module, query, memory = attention(name)
    module.role, padding = "enc-dec", PADDINGS["right"]
    causal = {"attn_mask": FUTURE} if query is memory else {}
    with record_disagreement(TERMS, ("enc-dec",)) as record:
        module(query, memory, memory, padding, need_weights=False, **causal)
    _, weights, values, heads = oracle(module, query, memory, padding, bool(causal))
    found = {term: record.values["enc-dec", term][0] for term in TERMS}
    torch.testing.assert_close(found["subspace"], mean_cosine(values))
    real = ~padding if causal else slice(None)  # a padded query may see nothing
    expected = mean_overlap(weights.transpose(0, 1)), mean_cosine(heads), mean_squared_cosine(heads)
    for term, of_queries in zip(("position", "output", "orthogonality"), expected):
        torch.testing.assert_close(found[term][real], of_queries[real])
    if not causal:
        torch.testing.assert_close(found["hsic"], mean_dependence(heads))


@pytest.mark.parametrize("heads", [2, 5, 9])
def test_a_term_is_one_where_all_heads_say_the_same_and_an_hth_where_none_does(heads: int) -> None:
    """With the opposite sign, in other directions, or with more heads than features."""
    one = torch.randn(2, 1, 7, 5, dtype=torch.float64)
    signs = torch.tensor([(-1.0) ** h for h in range(heads)], dtype=torch.float64)
    alike = one * signs.view(-1, 1, 1)
    torch.testing.assert_close(mean_squared_cosine(alike), torch.ones(2, 7).double())
    rotation = torch.linalg.qr(torch.randn(heads, 5, 5, dtype=torch.float64)).Q
    turned = alike @ rotation + 3
    torch.testing.assert_close(mean_dependence(turned), torch.ones(2, 7).double())
    apart = torch.eye(heads, dtype=torch.float64).expand(2, 7, heads, heads).transpose(1, 2)
    torch.testing.assert_close(mean_squared_cosine(apart), torch.full((2, 7), 1 / heads).double())


def attend(role: str = "dec-self", training: bool = False, **settings: Any) -> None:
    module, x, _ = attention("linear", **settings)
    module.role = role
    module.train(training)(x, x, x, need_weights=False)


@pytest.mark.parametrize(
    ("terms", "role", "matrices"),
    [
        (tuple({*TERMS} - {"position"}), "dec-self", 0),
        (("position",), "dec-self", 1),
        (TERMS, "enc-self", 0),
    ],
)
def test_no_attention_matrix_is_built_unless_position_asks(
    terms: Tuple[str, ...], role: str, matrices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a short sentence would have one for speed
    monkeypatch.setattr(SHORTCUTS, "products_are_faster", lambda q, k: False)
    with record_disagreement(terms, ["dec-self"]), Operations() as operations:
        attend(role)
    assert operations.count("_softmax") == matrices


def test_the_weights_are_those_before_dropout() -> None:
    measured = []
    for dropout in (0.0, 0.5):
        with record_disagreement(["position"], ["dec-self"]) as record:
            attend(training=True, dropout=dropout)
        measured += record.values["dec-self", "position"]
    assert torch.equal(*measured)


def test_the_innermost_open_block_measures_and_none_after_it_even_if_it_failed() -> None:
    with record_disagreement(TERMS, ["dec-self"]) as outer:
        with suppress(RuntimeError), record_disagreement(["output"], ["dec-self"]) as inner:
            attend()
            raise RuntimeError
        assert not outer.values
        attend()
    attend()
    assert [len(values) for values in inner.values.values()] == [1]
    assert [len(values) for values in outer.values.values()] == [1] * len(TERMS)
