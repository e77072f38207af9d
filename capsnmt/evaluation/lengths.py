"""BLEU by the length of the source sentence: Figure 3 of Ampomah et al., Figure 5 of Dou et al."""

from __future__ import annotations

from statistics import fmean
from typing import List, Optional, Sequence

import numpy as np

from capsnmt.evaluation.statistics import bleu_of

# **D**: the papers write 10-20 and 20-30: a length that stands in two names belongs to the second,
# so 10-20 is 10..19 and >50 is 50 and more. compare-mt, which Ampomah et al. use, does the same.
EDGES = (10, 20, 30, 40, 50)
BUCKETS = (
    f"<{EDGES[0]}",
    *(f"{low}-{high}" for low, high in zip(EDGES, EDGES[1:])),
    f">{EDGES[-1]}",
)


def bucket_of(sources: Sequence[str]) -> np.ndarray:
    """The bucket of each source sentence, ``[segments]``, as an index into ``BUCKETS``.

    The length is that of the line as it is: subwords for the source fairseq-generate prints without
    ``--remove-bpe`` (as in Ampomah et al.), words for plain tokenised text.

    >>> [BUCKETS[i] for i in bucket_of(["a", "a " * 9, "a " * 10, "a " * 49, "a " * 50])]
    ['<10', '<10', '10-20', '40-50', '>50']
    """
    return np.digitize([len(line.split()) for line in sources], EDGES)


def counts(buckets: np.ndarray) -> List[int]:
    """How many segments each bucket holds."""
    return [int(number) for number in np.bincount(buckets, minlength=len(BUCKETS))]


def mean_by_length(rows: Sequence[Sequence[Optional[float]]]) -> List[Optional[float]]:
    """The mean of each bucket over several outputs; ``None`` for an empty bucket.

    >>> mean_by_length([[20.0, None], [22.0, None]])
    [21.0, None]
    """
    means: List[Optional[float]] = []
    for bucket in zip(*rows):
        found = [value for value in bucket if value is not None]
        means.append(fmean(found) if found else None)
    return means


def bleu_by_length(statistics: np.ndarray, buckets: np.ndarray) -> List[Optional[float]]:
    """Corpus BLEU of the segments of each bucket; ``None`` for an empty one.

    Args:
        statistics: ``[segments, 10]``, of
            :func:`~capsnmt.evaluation.statistics.bleu_statistics`.
        buckets: ``[segments]``, of :func:`bucket_of`.
    """
    return [
        bleu_of(statistics[buckets == bucket].sum(0)) if (buckets == bucket).any() else None
        for bucket in range(len(BUCKETS))
    ]
