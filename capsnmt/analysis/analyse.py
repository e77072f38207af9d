"""Analyse models one after the other."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Dict, List, Sequence, Type

from capsnmt.analysis.ablation import HeadAblation, LayerAblation, LayerBleu
from capsnmt.analysis.agreement import Agreement
from capsnmt.analysis.attention import AttentionStatistics, Disagreement
from capsnmt.analysis.base import Analysis, NotApplicableError
from capsnmt.analysis.head_tsne import HeadTSNE
from capsnmt.analysis.hooks import observe
from capsnmt.analysis.layer_weights import LayerWeights
from capsnmt.analysis.model import AnalysedModel, NamedCheckpoint, Scope, load
from capsnmt.analysis.sentences import Sentences
from capsnmt.analysis.similarity import Anisotropy, Similarity

# in the order of the page
ANALYSES: Dict[str, Type[Analysis]] = {
    analysis.name: analysis
    for analysis in (
        AttentionStatistics,
        Agreement,
        Disagreement,
        HeadTSNE,
        LayerWeights,
        Similarity,
        Anisotropy,
        HeadAblation,
        LayerAblation,
        LayerBleu,
        Sentences,  # last: its section is followed by the browser
    )
}


@dataclass(frozen=True)
class Findings:
    """The finished analyses."""

    checkpoints: Sequence[NamedCheckpoint]  # in the order of the page
    scope: Scope
    sentences: Dict[str, int] = field(default_factory=dict)  # model -> how many were read
    of: Dict[str, Dict[str, Analysis]] = field(default_factory=dict)  # analysis -> model -> it
    missing: Dict[str, Dict[str, str]] = field(default_factory=dict)  # the same -> why it has none


def analyse(
    checkpoints: Sequence[NamedCheckpoint],
    scope: Scope,
    only: Sequence[str] = tuple(ANALYSES),
) -> Findings:
    """Run analyses on each model; a checkpoint that cannot be loaded ends it before the first."""
    for checkpoint in checkpoints[1:]:
        load(checkpoint, scope)
    findings = Findings(checkpoints, scope)
    for checkpoint in checkpoints:
        _analyse(load(checkpoint, scope), only, findings)
    return findings


def _analyse(model: AnalysedModel, names: Sequence[str], findings: Findings) -> None:
    """Add the analyses that apply to a model, and why others do not."""
    analyses: List[Analysis] = []
    for name, analysis in ANALYSES.items():
        try:
            if name in names:
                analyses.append(analysis(model))
        except NotApplicableError as reason:
            print(f"{model.name}: no {name}: {reason}", file=sys.stderr)
            findings.missing.setdefault(name, {})[model.name] = str(reason)
    for batch in model.batches():
        observe(model.model, batch, analyses)
    for finished in analyses:
        finished.finish(model)
        findings.of.setdefault(finished.name, {})[model.name] = finished
    findings.sentences[model.name] = len(model.chosen)
