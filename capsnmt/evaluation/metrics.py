"""The metrics: sacreBLEU's (Post 2018), means over segments, and BLEU by source length."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric, Score, Signature

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.scores import METRICS
from capsnmt.evaluation.text import WITHOUT_SPACES, base_language

DECIMALS = 9
# **D**: the papers write 10-20 and 20-30. A length that is in two names belongs to the second, so
# 10-20 is 10..19 and >50 is 50 and more. compare-mt, which Ampomah et al. use, does the same.
EDGES = (10, 20, 30, 40, 50)
BUCKETS = ("<10", "10-20", "20-30", "30-40", "40-50", ">50")


class ShownTER(TER):
    """TER that shows its progress on a terminal: it may take seconds for a long segment."""

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Any) -> Any:
        from tqdm import tqdm

        shown = tqdm(hypotheses, "  TER", unit=" segments", leave=False, disable=None)
        return super()._extract_corpus_statistics(shown, references)


def build_metrics(
    target_lang: Optional[str],
    references: Sequence[Sequence[str]],
    names: Sequence[str] = tuple(METRICS),
) -> Dict[str, Metric]:
    """Build sacreBLEU's metrics for a target language, with the references' statistics cached.

    BLEU uses the tokeniser that sacreBLEU recommends: zh, ja-mecab, ko-mecab, else 13a. **D**: with
    13a this is the score of ``mteval-v13a.pl -c``, which has the same tokeniser and smoothing
    (Post 2018), so the BLEU that Ampomah et al. 2020 report for En-De is not computed again.

    **D**: TER counts words. Chinese and Japanese do not separate words by spaces; for them TER
    uses sacreBLEU's normalisation and Asian support, which count characters. The signature says
    so.

    **D**: chrF++ counts words as well, and has no such support: of a perfect Chinese translation,
    whose spaces the detokeniser drops, it is 79.7. There it is left out.

    The keys are those of ``names``, in the order of :data:`~capsnmt.evaluation.scores.METRICS`.
    """
    base = base_language(target_lang)
    asian = base in WITHOUT_SPACES
    try:
        # test_set.py warns of tokens, once an output
        bleu = BLEU(trg_lang=base, force=True, references=references)
    except (ImportError, RuntimeError):  # MeCab is sacreBLEU's own extra
        raise ConfigurationError(
            f"BLEU for {target_lang!r} needs MeCab; pip install 'sacrebleu[{base}]'"
        ) from None
    metrics = {
        "bleu": lambda: bleu,
        "chrf": lambda: CHRF(references=references),
        "chrf++": lambda: CHRF(word_order=2, references=references),
        "ter": lambda: ShownTER(normalized=asian, asian_support=asian, references=references),
    }
    chosen = {*names} - ({"chrf++"} if asian else set())
    return {key: build() for key, build in metrics.items() if key in chosen}


def bleu_statistics(bleu: Metric, hypotheses: Sequence[str]) -> np.ndarray:
    """Compute the sufficient statistics of BLEU for every segment, integers ``[segments, 10]``.

    These are the lengths of the hypothesis and of the closest reference, the matching n-grams for
    n = 1..4, and all n-grams of the hypothesis for n = 1..4.
    """
    return np.array(bleu._extract_corpus_statistics(hypotheses, None))


def bleu_of(bleu: Metric, statistics: np.ndarray) -> float:
    """Compute corpus BLEU, 0..100, from statistics ``[10]`` that are sums over segments."""
    return float(bleu._compute_score_from_stats(statistics.tolist()).score)


def buckets_of(source: Optional[Sequence[str]]) -> Dict[str, np.ndarray]:
    """Return the numbers of the segments in each bucket of source lengths that has some.

    A length is the number of tokens in the line: subwords for the source that fairseq-generate
    prints without ``--remove-bpe`` (as in Ampomah et al.), words for plain tokenised text.

    >>> found = buckets_of(["a", "a " * 9, "a " * 10, "a " * 49, "a " * 50])
    >>> {name: numbers.tolist() for name, numbers in found.items()}
    {'<10': [0, 1], '10-20': [2], '40-50': [3], '>50': [4]}
    """
    if source is None:
        return {}
    found = np.digitize([len(line.split()) for line in source], EDGES)
    return {BUCKETS[bucket]: np.flatnonzero(found == bucket) for bucket in np.unique(found)}


class SegmentMean(Metric):
    """The mean over segments of scores that another program computed, as a metric of sacreBLEU.

    sacreBLEU sums the statistics of segments. Here these are the score and the number 1. **D**: the
    mean is rounded to 9 decimals, so that the same scores added in another order are a tie and not
    a greater difference.
    """

    def __init__(self, name: str, segments: int) -> None:
        super().__init__()
        self.name = name
        self._ref_cache: List[Any] = [{}] * segments

    def get_signature(self) -> Signature:
        """Return a signature in the form of sacreBLEU's, whose version computed nothing."""
        signature = Signature({"num_refs": None})
        signature.info = {"nsegs": len(self._ref_cache), "aggregate": "mean", "scores": "given"}
        signature.info["version"] = None
        return signature

    def _preprocess_segment(self, sent: float) -> float:
        return sent

    def _extract_reference_info(self, refs: Any) -> Dict[str, Any]:
        return {}

    def _compute_segment_statistics(self, hypothesis: float, ref_kwargs: Any) -> List[float]:
        return [hypothesis, 1.0]

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats)])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        return Score(self.name, round(float(stats[0]) / float(stats[1]), DECIMALS))
