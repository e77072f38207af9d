"""Resamples of a test set, which all outputs share: their differences are paired.

Statistics of segments are added up by matrix products: a resample of the test set is a row of
weights, and its score that of the sums.
"""

from dataclasses import dataclass
from functools import partial
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from capsnmt.evaluation.metrics import Measure
from capsnmt.evaluation.scores import CENTRED, RANDOMIZATION, SAMPLES, Test

# weights at a time, each of 8 bytes, and resamples: a multiple of 32, as bits are drawn in words
WEIGHTS, ROWS = 2**23, 512


@dataclass(frozen=True)
class Scored:
    """The scores of some outputs by one metric, and what they are on resamples of the test set."""

    measure: Measure
    segments: int
    scores: List[float]
    resampled: np.ndarray  # [outputs, resamples]: the scores, segments drawn with replacement
    exchanged: np.ndarray  # [outputs, trials]: the differences to its pair, segments exchanged


def resample(
    given: Mapping[str, Tuple[Measure, Sequence[np.ndarray]]],
    pairs: Sequence[int],
    test: Optional[Test],
    content: int = 0,
    fewest: int = SAMPLES[CENTRED],
) -> Dict[str, Scored]:
    """Score outputs by some metrics, and resamples of them that all share.

    - Resamples draw as many segments as there are, with replacement (Efron 1979; Koehn 2004).
    - Trials exchange two systems' translations of each segment with probability 1/2 (Riezler and
      Maxwell 2005).

    **D**: the draws are those of sacreBLEU with the same seed; of several test sets each has its
    own, by its ``content``, whatever its name and place. There are at least 10,000 resamples: the
    tests over seeds need a variance that another draw would not change.

    Args:
        given: metric -> its measure, and the statistics ``[segments, K]`` of each output
        pairs: the output that each is compared with, by its number; its own for none
        test: without one nothing is drawn
        content: a number of the test set, where there are several
        fewest: resamples
    """
    columns = [each for _, outputs in given.values() for each in outputs]
    changes = [
        each - outputs[pair] for _, outputs in given.values() for each, pair in zip(outputs, pairs)
    ]
    sums = moved = [np.zeros((0, each.shape[1])) for each in columns]
    if test is not None:
        draws = partial(np.random.default_rng, [test.seed, content] if content else test.seed)
        exchanging = test.method == RANDOMIZATION
        resamples = max(fewest, 0 if exchanging else test.samples)
        sums = _products(_weights(draws(), resamples, len(columns[0])), columns)
        if exchanging:
            moved = _products(_exchanges(draws(), test.samples, len(columns[0])), changes)
    found, size = {}, len(pairs)
    for place, (metric, (measure, outputs)) in enumerate(given.items()):
        totals, own = [each.sum(0) for each in outputs], slice(place * size, (place + 1) * size)
        found[metric] = Scored(
            measure,
            len(columns[0]),
            [measure.score(total) for total in totals],
            np.array([measure.scores(each) for each in sums[own]]),
            # what is exchanged goes from one system to the other
            np.array(
                [
                    measure.scores(total - change) - measure.scores(totals[pair] + change)
                    for total, change, pair in zip(totals, moved[own], pairs)
                ]
            ),
        )
    return found


def _weights(random: np.random.Generator, resamples: int, size: int) -> Iterator[np.ndarray]:
    """Yield how often each resample has each segment, ``[rows, segments]``."""
    for rows in _blocks(resamples, size):
        drawn = random.choice(size, size=(rows, size), replace=True)
        places = drawn + np.arange(rows)[:, None] * size
        yield np.bincount(places.ravel(), minlength=rows * size).reshape(rows, size)


def _exchanges(random: np.random.Generator, trials: int, size: int) -> Iterator[np.ndarray]:
    """Yield which segments each trial exchanges, ``[rows, segments]``."""
    for rows in _blocks(trials, size):
        yield random.integers(2, size=(rows, size), dtype=bool)


def _blocks(count: int, size: int) -> Iterator[int]:
    """Yield sizes of blocks that add up to a count, for weights of some segments."""
    rows = max(32, min(ROWS, WEIGHTS // size // 32 * 32))
    for start in range(0, count, rows):
        yield min(rows, count - start)


def _products(weights: Iterator[np.ndarray], columns: Sequence[np.ndarray]) -> List[np.ndarray]:
    """Return the weighted sums ``[resamples, K]`` of statistics ``[segments, K]``."""
    table = np.concatenate(columns, 1)
    sums = np.concatenate([rows.astype(float) @ table for rows in weights])
    return np.split(sums, np.cumsum([each.shape[1] for each in columns])[:-1], 1)
