"""BLEU by source length: Figure 3 of Ampomah et al. 2020, Figure 5 of Dou et al. 2019."""

from __future__ import annotations

from typing import Dict, Sequence

import numpy as np

from capsnmt.evaluation.bleu_statistics import bleu_of

# **D**: the papers write 10-20 and 20-30. A length that is in two names belongs to the second, so
# 10-20 is 10..19 and >50 is 50 and more. compare-mt, which Ampomah et al. use, does the same.
EDGES = (10, 20, 30, 40, 50)
BUCKETS = (
    f"<{EDGES[0]}",
    *(f"{low}-{high}" for low, high in zip(EDGES, EDGES[1:])),
    f">{EDGES[-1]}",
)


def bucket_of(sources: Sequence[str]) -> np.ndarray:
    """Return the bucket of each source sentence, ``[segments]``, as an index into ``BUCKETS``.

    A length is the number of tokens in the line: subwords for the source that fairseq-generate
    prints without ``--remove-bpe`` (as in Ampomah et al.), words for plain tokenised text.

    >>> [BUCKETS[i] for i in bucket_of(["a", "a " * 9, "a " * 10, "a " * 49, "a " * 50])]
    ['<10', '<10', '10-20', '40-50', '>50']
    """
    return np.digitize([len(line.split()) for line in sources], EDGES)


def segments_by_length(buckets: np.ndarray) -> Dict[str, int]:
    """Return the number of segments in each bucket that has some."""
    return {BUCKETS[bucket]: int((buckets == bucket).sum()) for bucket in np.unique(buckets)}


def bleu_by_length(statistics: np.ndarray, buckets: np.ndarray) -> Dict[str, float]:
    """Compute the corpus BLEU of the segments of each bucket that has some.

    Args:
        statistics: ``[segments, 10]``, from
            :func:`~capsnmt.evaluation.bleu_statistics.bleu_statistics`.
        buckets: ``[segments]``, from :func:`bucket_of`.
    """
    return {
        BUCKETS[bucket]: bleu_of(statistics[buckets == bucket].sum(0))
        for bucket in np.unique(buckets)
    }
