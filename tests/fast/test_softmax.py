"""The kernel of the loss against torch's softmax in fp64."""

from __future__ import annotations

from typing import Tuple

import pytest
import torch

from capsnmt.fast.softmax import softmax_
from capsnmt.modules import shortcuts


@pytest.mark.parametrize("size", [(1, 1), (3, 40), (5, 1013), (64, 4096)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spread", [1, 30])
def test_the_kernel_has_the_softmax_and_the_loss_of_torch(
    size: Tuple[int, int], dtype: torch.dtype, spread: int
) -> None:
    torch.manual_seed(size[1])
    scores = (torch.randn(size) * spread).to(dtype)
    words = torch.randint(size[1], (size[0], 1))
    exact = scores.double()
    expected = exact.softmax(-1)
    nll = softmax_(scores, words)
    torch.testing.assert_close(nll, -exact.log_softmax(-1).gather(1, words).float())
    torch.testing.assert_close(scores, expected.to(dtype))
    if dtype == torch.float32:  # and more closely than the default
        torch.testing.assert_close(scores.double(), expected, atol=1e-7, rtol=2e-6)


def test_what_the_kernel_does_not_read_is_left_to_torch() -> None:
    scores, words = torch.randn(4, 70), torch.randint(7, (4, 1))
    for ours in (scores.clone()[:, ::10], scores[:, :7].double(), scores[:, :7].half()):
        theirs = ours.clone(memory_format=torch.contiguous_format)
        assert softmax_(ours, words).equal(shortcuts.softmax_(theirs, words))
        assert ours.equal(theirs)


def test_a_score_that_is_no_number_makes_a_loss_that_is_none() -> None:
    for wrong in (torch.nan, torch.inf):
        scores = torch.randn(3, 50)
        scores[1, 20] = wrong
        nll = softmax_(scores, torch.zeros(3, 1, dtype=torch.long))
        assert nll.isnan().flatten().tolist() == [False, True, False]
        assert scores.isnan().any(-1).tolist() == [False, True, False]
