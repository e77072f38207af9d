"""Disagreement of heads against the paper's sums over pairs, and how it is measured."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from capsnmt.models.attention import HostedAttention as Attention
from capsnmt.modules.disagreement import (
    TERMS,
    mean_cosine,
    mean_overlap,
    record_disagreement,
)
from capsnmt.modules.multi_layer_attention import VARIANTS
from tests.counting import Operations
from tests.criterions.samples import disagreement_of_overlaps, disagreement_of_vectors
from tests.modules import attention_oracle
from tests.modules.compare import gradients, numbers

WIDTH, HEADS = 8, 4
DIRECTIONS = {"mean_cosine": mean_cosine, "mean_overlap": mean_overlap}
ORACLES = {"mean_cosine": disagreement_of_vectors, "mean_overlap": disagreement_of_overlaps}


def heads_of(name: str, heads: int = HEADS) -> Tensor:
    """Random vectors, or rows that sum to one, ``[2, heads, 3, 5]``."""
    torch.manual_seed(0)
    x = torch.randn(2, heads, 3, 5, dtype=torch.float64)
    return (x if name == "mean_cosine" else x.softmax(-1)).requires_grad_()


@pytest.mark.parametrize("heads", [1, 2, HEADS])
@pytest.mark.parametrize("name", DIRECTIONS)
def test_the_identity_and_its_gradient_equal_the_sum_over_pairs_of_heads(
    name: str, heads: int
) -> None:
    x = heads_of(name, heads)
    measured = DIRECTIONS[name](x)
    pairs = [torch.stack([ORACLES[name](x[b, :, l]) for l in range(3)]) for b in range(2)]
    torch.testing.assert_close(measured, torch.stack(pairs))
    torch.testing.assert_close(gradients(measured, [x]), gradients(torch.stack(pairs), [x]))


@pytest.mark.parametrize("name", DIRECTIONS)
def test_equal_heads_have_everything_in_common_and_orthogonal_ones_only_themselves(
    name: str,
) -> None:
    one = F.one_hot(heads_of(name, heads=1).argmax(-1), 5).double()
    equal = DIRECTIONS[name](one.expand(-1, HEADS, -1, -1))
    torch.testing.assert_close(equal, torch.ones(2, 3, dtype=torch.float64))
    orthogonal = DIRECTIONS[name](torch.eye(HEADS)[None, :, None])
    torch.testing.assert_close(orthogonal, torch.full((1, 1), 1 / HEADS))


def test_a_vector_without_direction_has_cosine_zero_and_no_gradient() -> None:
    x = heads_of("mean_cosine").detach()
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
    x = (heads_of("mean_cosine").detach() * scale).to(dtype).requires_grad_()
    measured = mean_cosine(x)
    assert measured.dtype == torch.float32
    torch.testing.assert_close(measured.double(), mean_cosine(x.double()), rtol=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(measured.sum(), x)
    assert gradient.isfinite().all()


def attention(role: str = "dec-self", dropout: float = 0.0) -> Attention:
    torch.manual_seed(1)
    module = Attention(WIDTH, HEADS, dropout=dropout).double()
    module.role = role
    return module


def attend(module: Attention, x: Tensor, **settings: Any) -> Tensor:
    return module(x, x, x, need_weights=False, **settings)[0]


def inputs() -> Tensor:
    return numbers(6, 2, WIDTH)


def test_an_attention_reports_its_projected_values_its_weights_and_its_heads() -> None:
    module, x = attention(), inputs()
    future = torch.full((6, 6), -torch.inf, dtype=torch.float64).triu(1)
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    with record_disagreement(TERMS, ["dec-self"]) as record:
        attend(module, x, attn_mask=future, key_padding_mask=padding)
    q, k, v = (
        projection(x).view(6, 2, HEADS, -1).permute(1, 2, 0, 3)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    )
    scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5 + future
    weights = scores.masked_fill(padding[:, None, None], -torch.inf).softmax(-1)
    expected = {
        "subspace": mean_cosine(v),
        "position": mean_overlap(weights),
        "output": mean_cosine(weights @ v),
    }
    for term in TERMS:
        (measured,) = record.values["dec-self", term]
        torch.testing.assert_close(measured, expected[term])


# every attention that hands on more than one matrix for each of its own heads
OTHERS: Dict[str, Callable[[], Tuple[Any, Tuple[Tensor, Tensor]]]] = {
    **{
        kind: lambda kind=kind: (attention_oracle.plain(kind), (numbers(4, 2, 6),) * 2)
        for kind in ("gated", "talking")
    },
    **{
        variant: lambda variant=variant: (
            attention_oracle.multi_layer(variant, 3),
            attention_oracle.inputs(3),
        )
        for variant in VARIANTS
    },
    "capsules": lambda: (attention_oracle.capsules("both"), (numbers(4, 2, 6),) * 2),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_terms_are_between_the_heads_of_the_call_before_a_gate(name: str) -> None:
    module, (query, memory) = OTHERS[name]()
    module.role = "enc-dec"
    padding = attention_oracle.PADDINGS["left"]
    with record_disagreement(TERMS, ("enc-dec",)) as record:
        module(query, memory, memory, padding, need_weights=False)
    q, k, v, mask = module.project(query, memory, padding, None)
    heads, weights = module.attend(q, k, v, None, mask, None, True)
    expected = (mean_cosine(v), mean_overlap(weights), mean_cosine(heads))
    for term, value in zip(("subspace", "position", "output"), expected):
        torch.testing.assert_close(record.values["enc-dec", term], [value])


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
    monkeypatch.setattr("capsnmt.cpu.attention.PLAIN_UP_TO", 0)
    with record_disagreement(terms, ["dec-self"]), Operations() as operations:
        attend(attention(role), inputs())
    assert operations.count("_softmax") == matrices


def test_the_weights_are_those_before_dropout() -> None:
    measured = []
    for dropout in (0.0, 0.5):
        module = attention(dropout=dropout).train()
        with record_disagreement(["position"], ["dec-self"]) as record:
            attend(module, inputs())
        measured += record.values["dec-self", "position"]
    assert torch.equal(*measured)


def test_nothing_is_measured_after_the_block_even_if_it_failed() -> None:
    with pytest.raises(RuntimeError, match="stop"), record_disagreement(TERMS, ["dec-self"]) as old:
        raise RuntimeError("stop")
    attend(attention(), inputs())
    assert not old.values


def test_inside_another_block_the_inner_one_measures() -> None:
    with record_disagreement(TERMS, ["dec-self"]) as outer:
        with record_disagreement(["output"], ["dec-self"]) as inner:
            attend(attention(), inputs())
        assert not outer.values
        attend(attention(), inputs())
    assert [len(values) for values in inner.values.values()] == [1]
    assert [len(values) for values in outer.values.values()] == [1, 1, 1]
