"""Disagreement of heads: what of each attention is measured, when, and in which precision."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Tuple

import pytest
import torch
from torch import Tensor

from capsnmt.modules.disagreement import (
    TERMS,
    mean_cosine,
    mean_overlap,
    record_disagreement,
)
from capsnmt.modules.shortcuts import SHORTCUTS
from tests.counting import Operations
from tests.modules.attention_oracle import (
    ATTENTIONS,
    FUTURE,
    PADDINGS,
    attention,
    oracle,
)

HEADS = 4


def vectors() -> Tensor:
    """Random vectors of the heads, ``[2, H, 3, 5]``."""
    torch.manual_seed(0)
    return torch.randn(2, HEADS, 3, 5, dtype=torch.float64)


def test_a_vector_without_direction_has_cosine_zero_and_no_gradient() -> None:
    x = vectors()
    x[0, 0], x[1, 1] = 0, 1e-20
    x.requires_grad_()
    measured = mean_cosine(x)
    (gradient,) = torch.autograd.grad(measured.sum(), x)
    assert gradient.isfinite().all()
    assert not gradient[0, 0].any()
    assert not gradient[1, 1].any()
    assert gradient[0, 1].any()
    others = mean_cosine(x[:1, 1:]) * ((HEADS - 1) / HEADS) ** 2
    torch.testing.assert_close(measured[:1], others)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_measured_in_single_precision(dtype: torch.dtype, scale: float) -> None:
    """fp16 squares overflow beyond 256 and vanish below 2e-4; the measure must do neither."""
    x = (vectors() * scale).to(dtype).requires_grad_()
    measured = mean_cosine(x)
    assert measured.dtype == torch.float32
    torch.testing.assert_close(measured.double(), mean_cosine(x.double()), rtol=1e-5, atol=1e-6)
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
    expected = mean_overlap(weights.transpose(0, 1)), mean_cosine(heads)
    for term, of_queries in zip(("position", "output"), expected):
        torch.testing.assert_close(found[term][real], of_queries[real])


def attend(role: str = "dec-self", training: bool = False, **settings: Any) -> None:
    module, x, _ = attention("linear", **settings)
    module.role = role
    module.train(training)(x, x, x, need_weights=False)


@pytest.mark.parametrize(
    ("terms", "role", "matrices"),
    [
        (("subspace", "output"), "dec-self", 0),
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
    assert [len(values) for values in outer.values.values()] == [1, 1, 1]
