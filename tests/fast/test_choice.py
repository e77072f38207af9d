"""Our choice of words in a beam search on a CPU against fairseq's, and the kernel against torch."""

from __future__ import annotations

import inspect
import math
from typing import Dict, List

import pytest
import torch

from capsnmt.fast.search.decoding import choose
from capsnmt.fast.search.generator import BeamSearch
from tests.support import task_of

STOCK = BeamSearch.__base__
# fairseq 0.12.2 always has twice as many candidates as hypotheses
OTHER = "candidate_multiple" in inspect.signature(STOCK.step).parameters
MULTIPLES: List[Dict[str, int]] = [{}, {"candidate_multiple": 1}] if OTHER else [{}]


def log_probabilities(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).log_softmax(-1)


# fairseq's own choice begins below 12,000 words, and with 60 hypotheses below 14,641
@pytest.mark.parametrize(("words", "beam"), [(12000, 5), (12101, 4), (20000, 1), (14641, 60)])
@pytest.mark.parametrize("settings", MULTIPLES)
def test_it_chooses_what_fairseq_chooses(words: int, beam: int, settings: Dict[str, int]) -> None:
    """Test hypotheses of different quality, and words that must not be chosen."""
    lprobs = log_probabilities(6, beam, words)
    lprobs[:, :, 1] = -math.inf
    lprobs[1, 0, 2:] = -math.inf
    lprobs[2, :, : words // 2] = -math.inf
    for step in (0, 3):
        scores = 3 * log_probabilities(6, beam, 3)[..., :step]
        found, expected = (
            strategy(task_of(words).target_dictionary).step(step, lprobs, scores, **settings)
            for strategy in (BeamSearch, STOCK)
        )
        assert found[0].equal(expected[0])
        possible = expected[0] > -math.inf
        for ours, theirs in zip(found[1:], expected[1:]):
            assert ours[possible].equal(theirs[possible])


@pytest.mark.parametrize("words", [40, 1013, 4096])
@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("only", [-1, 7])
def test_the_kernel_chooses_as_torch_does(words: int, beam: int, only: int) -> None:
    torch.manual_seed(words)
    logits = torch.randn(3 * beam, words) * 3
    logits[0, 1] = 50.0  # pad, which must not be chosen
    logits[-1, 2:] = -torch.inf
    totals = -3 * torch.rand(3, beam)
    found = choose(logits, totals, 2 * beam, 1, 2, only)
    expected = choose(logits.double(), totals, 2 * beam, 1, 2, only)
    torch.testing.assert_close(found[0], expected[0])
    possible = expected[0] > -torch.inf
    assert possible.any()
    for ours, theirs in zip(found[1:], expected[1:]):
        assert ours[possible].equal(theirs[possible])
    logits[beam] = torch.nan
    assert choose(logits, totals, 2 * beam, 1, 2, -1)[0][1].isnan().all()
