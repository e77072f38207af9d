"""Linear CKA against its definition on all tokens at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from capsnmt.analysis.similarity import STACKS, Similarity
from tests.analysis.systems import analysed, precise, states_of_each_sentence, system_of

MODELS = {
    "transformer": ("capsnmt_transformer",),
    "different depths": ("capsnmt_transformer", "--encoder-layers", "3"),
    "pre-norm": ("capsnmt_transformer", "--decoder-normalize-before"),
    "layer aggregation": ("transformer_dlcl_routing",),
    "multi-layer attention": ("transformer_mlmha",),
}


def cka(x: Tensor, y: Tensor) -> float:
    """Kornblith et al. 2019, equation 3, by the kernels of all pairs of tokens."""
    n = len(x)
    centre = torch.eye(n, dtype=x.dtype) - 1 / n

    def hsic(a: Tensor, b: Tensor) -> Tensor:
        return torch.trace(a @ a.t() @ centre @ b @ b.t() @ centre)

    return float(hsic(x, y) / (hsic(x, x) * hsic(y, y)).sqrt())


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize("flags", MODELS.values(), ids=MODELS)
def test_it_is_the_alignment_of_all_real_tokens(flags: Any, left_pad: bool) -> None:
    model = precise(*flags)
    expected = []
    for stack in STACKS:
        layers = [torch.cat(layer) for layer in zip(*states_of_each_sentence(model, stack))]
        for a, x in enumerate(layers):
            expected += [(stack, a, b, cka(x, y)) for b, y in enumerate(layers)]
    rows = analysed(Similarity, system_of(model, left_pad)).rows()
    assert [row[:3] for row in rows] == [row[:3] for row in expected]
    assert [row[3] for row in rows] == pytest.approx([row[3] for row in expected], abs=1e-9)


def similarity(x: Tensor, y: Tensor) -> float:
    analysis = Similarity(SimpleNamespace())
    for part in (slice(0, 10), slice(10, None)):
        real = torch.ones(1, len(x[part]), dtype=torch.bool)
        states = [x[None, part], y[None, part]]
        batch = SimpleNamespace(source=real, target=real)
        analysis.passed(SimpleNamespace(batch=batch, encoder=states, decoder=states))
    analysis.finish()
    return float(analysis.cka["encoder"][0, 1])


def test_a_rotation_a_scale_and_a_shift_change_nothing() -> None:
    torch.manual_seed(0)
    x = torch.randn(100, 4)
    rotation = torch.linalg.qr(torch.randn(4, 4))[0]
    assert similarity(x, 3 * x @ rotation + 7) == pytest.approx(1, abs=1e-5)
    assert similarity(x, x @ torch.diag(torch.tensor([1.0, 0, 0, 0]))) < 0.9


def test_states_that_have_nothing_in_common_are_near_0() -> None:
    torch.manual_seed(0)
    assert similarity(torch.randn(5000, 4), torch.randn(5000, 4)) < 0.01


def test_a_constant_layer_has_no_similarity() -> None:
    x = torch.randn(50, 4)
    assert torch.tensor(similarity(x, torch.full((50, 4), 0.1))).isnan()
