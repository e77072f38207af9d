"""The analyses, in the order of the page."""

from __future__ import annotations

from typing import Dict, Type

from capsnmt.analysis.agreement import Agreement
from capsnmt.analysis.anisotropy import Anisotropy
from capsnmt.analysis.attention import AttentionStatistics
from capsnmt.analysis.base import Analysis
from capsnmt.analysis.disagreement import Disagreement
from capsnmt.analysis.head_ablation import HeadAblation
from capsnmt.analysis.head_tsne import HeadProjection
from capsnmt.analysis.layer_ablation import LayerAblation
from capsnmt.analysis.layer_weights import LayerWeights
from capsnmt.analysis.sentences import Sentences
from capsnmt.analysis.similarity import Similarity

ANALYSES: Dict[str, Type[Analysis]] = {
    analysis.name: analysis
    for analysis in (
        AttentionStatistics,
        Agreement,
        Disagreement,
        HeadProjection,
        LayerWeights,
        Similarity,
        Anisotropy,
        HeadAblation,
        LayerAblation,
        Sentences,  # last: its section is followed by the browser
    )
}
