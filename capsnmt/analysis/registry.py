"""The analyses, in the order of the page."""

from __future__ import annotations

from typing import Dict, Type

from capsnmt.analysis.agreement import Agreement
from capsnmt.analysis.attention import AttentionStatistics
from capsnmt.analysis.base import Analysis
from capsnmt.analysis.disagreement import Disagreement

ANALYSES: Dict[str, Type[Analysis]] = {
    analysis.name: analysis for analysis in (AttentionStatistics, Agreement, Disagreement)
}
