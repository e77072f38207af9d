"""What the evaluation says, for readers and for machines."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Dict, List, Optional, Sequence

import capsnmt
from capsnmt.evaluation.scoring import METRICS, Score
from capsnmt.evaluation.systems import System


@dataclass(frozen=True)
class Evaluation:
    """Systems, their scores, and what these were measured against.

    Attributes:
        reference: the reference's file, or the system whose ``T-`` lines it is.
        raw_reference: whether it is a file, and no tokenised text put together again.
        baseline: the first system's name, where the others were tested against it.
    """

    reference: str
    raw_reference: bool
    systems: Sequence[System]
    scores: Sequence[Dict[str, Score]]
    target_lang: Optional[str]
    baseline: Optional[str]
    resamples: int
    seed: int


def versions() -> Dict[str, Optional[str]]:
    """The versions that decide over scores; ``None`` for a package that is not installed."""
    found: Dict[str, Optional[str]] = {
        "capsnmt": capsnmt.__version__,  # a checkout used by path has no metadata
        "python": platform.python_version(),
    }
    for package in ("sacrebleu", "sacremoses"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def as_json(evaluation: Evaluation) -> Dict[str, Any]:
    """The evaluation as one JSON document, every number in full precision."""
    tested = evaluation.baseline is not None
    systems = []
    for system, scores in zip(evaluation.systems, evaluation.scores):
        entry: Dict[str, Any] = {"name": system.name, "path": system.path}
        for key, score in scores.items():
            entry[key] = {"score": score.score, "signature": score.signature}
        if tested:
            entry["significance"] = {
                key: {"p_value": score.p_value, "mean": score.mean, "ci": score.ci}
                for key, score in scores.items()
            }
        systems.append(entry)
    return {
        "reference": {
            "source": evaluation.reference,
            "raw": evaluation.raw_reference,
            "segments": len(evaluation.systems[0].hypotheses),
        },
        "target_lang": evaluation.target_lang,
        "systems": systems,
        "baseline": evaluation.baseline,
        "resamples": evaluation.resamples if tested else None,
        "seed": evaluation.seed if tested else None,
        "versions": versions(),
    }


def as_text(evaluation: Evaluation) -> str:
    """The evaluation as a table, with the signatures below it."""
    width = max(len("system"), *(len(system.name) for system in evaluation.systems))
    lines = [
        f"{len(evaluation.systems[0].hypotheses):,} segments, reference: {evaluation.reference}",
        "",
        f"{'system':<{width}}" + "".join(f"{name:>10}" for name in METRICS.values()),
    ]
    for system, scores in zip(evaluation.systems, evaluation.scores):
        lines += _rows(system.name, width, [scores[key] for key in METRICS])
    lines.append("")
    lines += [f"{name:<6}{evaluation.scores[0][key].signature}" for key, name in METRICS.items()]
    if evaluation.baseline is not None:
        lines.append(
            f"\npaired bootstrap against {evaluation.baseline}: {evaluation.resamples:,} "
            f"resamples, seed {evaluation.seed}; p is the probability of such a difference if "
            "there is none"
        )
    return "\n".join(lines)


def _rows(name: str, width: int, scores: List[Score]) -> List[str]:
    """A system's scores and, after a test, confidence intervals and p-values, a line each."""
    rows = [f"{name:<{width}}" + "".join(f"{score.score:10.2f}" for score in scores)]
    if scores[0].ci is not None:
        rows.append(f"{'  95%':<{width}}" + "".join(f"{f'± {s.ci:.2f}':>10}" for s in scores))
    if scores[0].p_value is not None:
        rows.append(f"{'  p':<{width}}" + "".join(f"{score.p_value:10.4f}" for score in scores))
    return rows
