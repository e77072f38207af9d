"""BLEU, chrF and TER by sacreBLEU (Post 2018), with the signatures that make them comparable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.text import WITHOUT_SPACES, base_language

# our keys, in the order of every report, and the names sacreBLEU prints
METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}


@dataclass(frozen=True)
class Score:
    """A system's score by one metric.

    Attributes:
        score: 0..100 for BLEU and chrF; edits per 100 reference words for TER, less is better.
        signature: sacreBLEU's.
        p_value, mean, ci: of the paired bootstrap, where there was one: the probability of at least
            this difference to the baseline if there were none, the mean over resamples, and half
            the width of its 95% confidence interval. The baseline has no p-value.
    """

    score: float
    signature: str
    p_value: Optional[float] = None
    mean: Optional[float] = None
    ci: Optional[float] = None


def import_sacrebleu_metrics() -> Any:
    """The module ``sacrebleu.metrics``.

    Raises:
        ConfigurationError: sacreBLEU is not installed.
    """
    try:
        import sacrebleu.metrics
    except ImportError:
        raise ConfigurationError(
            "scoring needs sacreBLEU: pip install 'capsnmt[evaluation]'"
        ) from None
    return sacrebleu.metrics


def build_metrics(target_lang: Optional[str], reference: Sequence[str]) -> Dict[str, Any]:
    """sacreBLEU's metrics for a target language, with the reference's statistics cached.

    BLEU takes the tokeniser sacreBLEU recommends: zh, ja-mecab, ko-mecab, else 13a. **D**: with 13a
    this is the number of ``mteval-v13a.pl -c``, its tokeniser and its smoothing (Post 2018), so the
    BLEU that Ampomah et al. 2020 report for En-De is not computed a second time.

    **D**: TER counts words; Chinese and Japanese have no spaces between them, so there it is taken
    with sacreBLEU's normalisation and Asian support, by characters. The signature says so.

    Args:
        target_lang: a language code; ``None`` is as sacreBLEU without one.
        reference: one reference for each segment.

    Raises:
        ConfigurationError: sacreBLEU, or what it needs for this language, is not installed.
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
        "ter": library.TER(normalized=asian, asian_support=asian, references=references),
    }


def score_system(metrics: Dict[str, Any], hypotheses: List[str]) -> Dict[str, Score]:
    """Corpus scores of one system by every metric of :func:`build_metrics`."""
    return {
        key: Score(
            float(metric.corpus_score(hypotheses, None).score),
            metric.get_signature().format(short=False),
        )
        for key, metric in metrics.items()
    }
