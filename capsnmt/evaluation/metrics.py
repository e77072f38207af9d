"""The keys and names of the metrics."""

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
