"""The faster choice of continuations against fairseq's, which reads all words."""

from __future__ import annotations

import inspect
import math
from typing import Dict, List

import pytest
import torch
from fairseq.data import Dictionary

import capsnmt.plugin  # noqa: F401
from capsnmt.models.beam_search import BeamSearch

STOCK = BeamSearch.__base__
# fairseq 0.12.2 always has twice as many candidates as hypotheses
OTHER = "candidate_multiple" in inspect.signature(STOCK.step).parameters
SETTINGS: List[Dict[str, int]] = [{}, {"candidate_multiple": 1}] if OTHER else [{}]


def dictionary(words: int) -> Dictionary:
    found = Dictionary()
    for word in range(words - len(found)):
        found.add_symbol(f"w{word}")
    return found


def log_probabilities(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).log_softmax(-1)


@pytest.mark.parametrize("words", [121, 150, 1000, 1013, 9800])
@pytest.mark.parametrize("beam", [1, 4, 5])
@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("settings", SETTINGS)
def test_it_chooses_what_fairseq_chooses(
    words: int, beam: int, step: int, settings: Dict[str, int]
) -> None:
    """Test hypotheses of different quality, and words that must not be chosen."""
    lprobs = log_probabilities(6, beam, words)
    lprobs[:, :, 1] = -math.inf
    lprobs[1, 0, 2:] = -math.inf
    lprobs[2, :, : words // 2] = -math.inf
    scores = 3 * log_probabilities(6, beam, 3)[..., :step]
    found, expected = (
        strategy(dictionary(words)).step(step, lprobs, scores, **settings)
        for strategy in (BeamSearch, STOCK)
    )
    assert found[0].equal(expected[0])
    possible = expected[0] > -math.inf
    for ours, theirs in zip(found[1:], expected[1:]):
        assert ours[possible].equal(theirs[possible])
