"""BLEU's sufficient statistics by segment, which length buckets and the sign test add up."""

from __future__ import annotations

from typing import List, Optional, Sequence

import numpy as np

from capsnmt.evaluation.scoring import import_sacrebleu_metrics
from capsnmt.evaluation.text import base_language

ORDER = 4


def bleu_statistics(
    target_lang: Optional[str], hypotheses: Sequence[str], reference: Sequence[str]
) -> np.ndarray:
    """Compute the statistics of every segment, with the tokeniser of the corpus score.

    Args:
        target_lang: language code, as for :func:`~capsnmt.evaluation.scoring.build_metrics`.
        hypotheses: segments of a system.
        reference: one reference for each segment.

    Returns:
        Integers ``[segments, 10]``: length of the hypothesis, length of the reference, matching
        n-grams for n = 1..4, all n-grams of the hypothesis for n = 1..4.
    """
    # effective order only silences a warning about sentence scores, which are not used
    bleu = import_sacrebleu_metrics().BLEU(
        trg_lang=base_language(target_lang or ""), effective_order=True
    )
    rows: List[List[int]] = []
    for hypothesis, target in zip(hypotheses, reference):
        score = bleu.sentence_score(hypothesis, [target])
        rows.append([score.sys_len, score.ref_len, *score.counts, *score.totals])
    return np.array(rows, dtype=np.int64).reshape(-1, 2 + 2 * ORDER)


def bleu_of(total: np.ndarray) -> float:
    """Compute corpus BLEU, 0..100, from summed statistics ``[10]``, with sacreBLEU's smoothing."""
    numbers = [int(number) for number in total]
    bleu = import_sacrebleu_metrics().BLEU.compute_bleu(
        correct=numbers[2 : 2 + ORDER],
        total=numbers[2 + ORDER :],
        sys_len=numbers[0],
        ref_len=numbers[1],
        smooth_method="exp",
    )
    return float(bleu.score)
