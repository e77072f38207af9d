"""Dropout by random bits: its distribution, its gradient, and where torch's runs instead."""

import pytest
import torch
import torch.nn.functional as F

from capsnmt.fast.shortcuts import random_numbers
from capsnmt.models.attention import RetainedDropout
from capsnmt.modules.dropout import Dropout
from tests.counting import kept

FEATURES = 200_000


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> list:
    calls: list = []
    stock = F.dropout
    monkeypatch.setattr(F, "dropout", lambda *args, **more: calls.append(1) or stock(*args, **more))
    return calls


@pytest.mark.parametrize(
    ("p", "dtype"),
    [(0.1, torch.float32), (0.5, torch.bfloat16), (0.9, torch.float64), (1 / 65536, torch.float32)],
)
def test_it_drops_with_the_probability_and_keeps_the_mean(
    p: float, dtype: torch.dtype, hosts: list
) -> None:
    """Test within five standard deviations."""
    found = Dropout(p)(torch.ones(FEATURES, dtype=dtype))
    assert not hosts
    assert found.dtype == dtype
    dropped = found.eq(0)
    deviation = (p * (1 - p) / FEATURES) ** 0.5
    assert dropped.double().mean().item() == pytest.approx(p, abs=5 * deviation)
    rounded = round(p * 65536) / 65536
    scale = torch.tensor(1 / (1 - rounded), dtype=dtype)
    torch.testing.assert_close(found[~dropped], scale.expand(int((~dropped).sum())))


def test_features_are_dropped_independently() -> None:
    dropped = Dropout(0.5)(torch.ones(FEATURES)).eq(0).double() - 0.5
    for distance in (1, 2, 3, 4, 8):
        correlation = 4 * (dropped[distance:] * dropped[:-distance]).mean().item()
        assert abs(correlation) < 5 / FEATURES**0.5


def test_every_value_of_a_random_number_is_as_likely_as_the_others() -> None:
    counts = torch.bincount(random_numbers(torch.empty(64 * 65536)).int() + 32768, minlength=65536)
    assert len(counts) == 65536
    # chi-squared of 65,535 degrees of freedom: mean 65,535 and deviation 362
    assert abs(((counts - 64.0) ** 2 / 64).sum().item() - 65535) < 5 * 362


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (0, 4)])
def test_the_gradient_passes_where_the_feature_did_by_a_byte_of_each(shape: tuple) -> None:
    x = torch.randn(shape, dtype=torch.float64).transpose(0, -1).requires_grad_()
    module = Dropout(0.3)
    torch.manual_seed(7)
    with kept() as saved:
        y = module(x)
    assert [tensor.element_size() for tensor in saved] == [1]
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y, x * gradient)
    assert y.stride() == F.dropout(x, 0.3).stride() or not y.numel()
    assert torch.autograd.gradcheck(lambda x: torch.manual_seed(7) and module(x), x)
    assert module(x).shape == x.shape


@pytest.mark.parametrize("p", [1e-6, 1.0])
def test_probabilities_near_none_and_all_are_torchs(p: float, hosts: list) -> None:
    assert Dropout(p)(torch.ones(10)).ne(0).sum() == (10 if p < 1 else 0)
    assert hosts


def test_it_rests_in_evaluation_unless_it_is_retained() -> None:
    x = torch.ones(1000)
    module = RetainedDropout(0.5, "Layer").eval()
    assert module(x) is x
    module.make_generation_fast_("", retain_dropout=True)
    assert module(x).eq(0).any()
    assert Dropout(0.0)(x) is x
