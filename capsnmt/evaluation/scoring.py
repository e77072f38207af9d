"""BLEU, chrF, chrF++ and TER by sacreBLEU (Post 2018), with their signatures."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.scores import Score
from capsnmt.evaluation.text import WITHOUT_SPACES, base_language


def import_sacrebleu_metrics() -> Any:
    """Import ``sacrebleu.metrics``."""
    import sacrebleu.metrics

    return sacrebleu.metrics


def build_metrics(target_lang: Optional[str], reference: Sequence[str]) -> Dict[str, Any]:
    """Build sacreBLEU's metrics for a target language, with the reference's statistics cached.

    BLEU uses the tokeniser that sacreBLEU recommends: zh, ja-mecab, ko-mecab, else 13a. **D**: with
    13a this is the score of ``mteval-v13a.pl -c``, which has the same tokeniser and smoothing
    (Post 2018), so the BLEU that Ampomah et al. 2020 report for En-De is not computed again.

    **D**: TER counts words. Chinese and Japanese do not separate words by spaces; for them TER
    uses sacreBLEU's normalisation and Asian support, which count characters. The signature says
    so.

    Args:
        target_lang: language code; ``None`` is sacreBLEU without a language.
        reference: one reference for each segment.

    Returns:
        Key of :data:`~capsnmt.evaluation.scores.METRICS` -> metric.

    Raises:
        ConfigurationError: sacreBLEU, or a package it needs for this language, is not installed.
    """
    library = import_sacrebleu_metrics()
    base = base_language(target_lang or "")
    asian = base in WITHOUT_SPACES
    references = [list(reference)]
    try:
        bleu = library.BLEU(trg_lang=base, references=references)
    except (ImportError, RuntimeError):  # MeCab is sacreBLEU's own extra
        raise ConfigurationError(
            f"BLEU for {target_lang!r} needs MeCab: pip install 'sacrebleu[{base}]'"
        ) from None
    return {
        "bleu": bleu,
        "chrf": library.CHRF(references=references),
        "chrf++": library.CHRF(word_order=2, references=references),
        "ter": library.TER(normalized=asian, asian_support=asian, references=references),
    }


def score_system(metrics: Dict[str, Any], segments: Sequence[Any]) -> Dict[str, Score]:
    """Compute the corpus scores of one output by every metric.

    Args:
        metrics: name -> metric, as of :func:`build_metrics`.
        segments: what the metrics score of each segment.
    """
    return {
        key: Score(
            score=float(metric.corpus_score(segments, None).score),
            signature=metric.get_signature().format(),
        )
        for key, metric in metrics.items()
    }
