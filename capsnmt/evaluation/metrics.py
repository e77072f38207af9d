"""The keys and names of the metrics, and how many digits of a score are printed."""

from __future__ import annotations

# key of each metric, in the order of every report, and the name sacreBLEU prints
METRICS = {"bleu": "BLEU", "chrf": "chrF2", "chrf++": "chrF2++", "ter": "TER"}

# key of each tokenised BLEU, and the published numbers it is comparable with
MULTI_BLEU, COMPOUND_SPLIT = "multi-bleu", "compound-split"
COMPARABLE = {
    MULTI_BLEU: "multi-bleu.perl on Moses-tokenised text, case-sensitive (Ampomah et al. 2020, "
    "Es-En)",
    COMPOUND_SPLIT: "multi-bleu.perl after splitting compounds, ##AT##-##AT## (WMT14 En-De of "
    "Vaswani et al. 2017 and tensor2tensor's get_ende_bleu.sh)",
}


def digits(metric: str) -> int:
    """Return the decimals of a printed score: 4 for means of segment scores, most of them 0..1.

    >>> digits("bleu"), digits("COMET")
    (2, 4)
    """
    return 2 if metric in METRICS or metric in COMPARABLE else 4


def is_reserved(name: str) -> bool:
    """Return whether a name, whatever its case, is that of a metric above.

    >>> is_reserved("Bleu"), is_reserved("COMET")
    (True, False)
    """
    return name.lower() in {each.lower() for each in (*METRICS, *METRICS.values(), *COMPARABLE)}
