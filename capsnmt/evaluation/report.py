"""What the evaluation says, for readers and for machines."""

from __future__ import annotations

import platform
from dataclasses import asdict
from importlib import metadata
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

import capsnmt
from capsnmt.evaluation.compare_mt import PAGE, SAMPLE_RATIO
from capsnmt.evaluation.lengths import BUCKETS
from capsnmt.evaluation.results import Evaluation, OutputResult, SystemResult
from capsnmt.evaluation.scoring import METRICS, Score
from capsnmt.evaluation.tokenized import COMPARABLE


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
    """The evaluation as one JSON document, every number in full precision.

    A system of one output is that output; one of several holds them as ``outputs``, and the mean
    and standard deviation of each score.
    """
    tested = evaluation.baseline is not None
    return {
        "reference": {
            "source": evaluation.reference,
            "raw": evaluation.raw_reference,
            "segments": evaluation.segments,
        },
        "target_lang": evaluation.target_lang,
        "systems": [_system(system, tested) for system in evaluation.systems],
        "tokenized": COMPARABLE,
        "lengths": None
        if evaluation.lengths is None
        else {
            "of": evaluation.length_unit,
            "buckets": list(BUCKETS),
            "segments": evaluation.lengths,
        },
        "baseline": evaluation.baseline,
        "resamples": evaluation.resamples if tested else None,
        "seed": evaluation.seed if tested else None,
        "versions": versions(),
    }


def _system(system: SystemResult, tested: bool) -> Dict[str, Any]:
    if len(system.outputs) == 1:
        return {"name": system.name, **_output(system.outputs[0], tested)}
    first = system.outputs[0]

    def several(metric: str, score: Score) -> Dict[str, Any]:
        found = system.spread(metric)
        return {"score": found.pop("mean"), **found, "signature": score.signature}

    return {
        "name": system.name,
        **{metric: several(metric, score) for metric, score in first.scores.items()},
        "tokenized": {kind: several(kind, score) for kind, score in first.tokenized.items()},
        "by_length": system.by_length,
        "outputs": [_output(output, tested) for output in system.outputs],
    }


def _output(output: OutputResult, tested: bool) -> Dict[str, Any]:
    entry: Dict[str, Any] = {"path": output.path}
    for key, score in output.scores.items():
        entry[key] = {"score": score.score, "signature": score.signature}
    entry["tokenized"] = {
        kind: {"score": score.score, "signature": score.signature}
        for kind, score in output.tokenized.items()
    }
    entry["by_length"] = output.by_length
    if tested:
        entry["significance"] = {
            key: {"p_value": score.p_value, "mean": score.mean, "ci": score.ci}
            for key, score in output.scores.items()
        }
        entry["sign_test"] = None if output.sign_test is None else asdict(output.sign_test)
    return entry


def as_text(evaluation: Evaluation) -> str:
    """The evaluation as tables, with the signatures below them."""
    width = max(len("system"), *(len(system.name) for system in evaluation.systems))
    lines = [f"{evaluation.segments:,} segments, reference: {evaluation.reference}", ""]
    lines += _score_table(evaluation.systems, METRICS, width)
    first = evaluation.systems[0].outputs[0]
    lines += ["", *(f"{name:<6}{first.scores[key].signature}" for key, name in METRICS.items())]
    if "tok:13a" in first.scores["bleu"].signature:
        lines.append("BLEU is that of mteval-v13a.pl -c, too: its tokeniser and smoothing")
    if first.tokenized:
        lines += ["", "tokenised BLEU, comparable with nothing above:", ""]
        lines += _score_table(evaluation.systems, {kind: kind for kind in first.tokenized}, width)
        lines.append("")
        for kind, score in first.tokenized.items():
            lines += [f"{kind}: {COMPARABLE[kind]}", f"  {score.signature}"]
    if evaluation.lengths is not None:
        lines += ["", *_length_table(evaluation, width)]
    if evaluation.baseline is not None:
        lines += ["", *_tests(evaluation, width)]
    if evaluation.compare_mt is not None:
        lines += [
            "",
            f"compare-mt's report on the first output of each: {evaluation.compare_mt / PAGE}. Its "
            "bootstrap, "
            f"{evaluation.resamples:,} resamples of {SAMPLE_RATIO:.0%} of the segments, seed "
            f"{evaluation.seed}, is another test than ours: do not mix them",
        ]
    return "\n".join(lines)


def _score_table(
    systems: Sequence[SystemResult], metrics: Mapping[str, str], width: int
) -> List[str]:
    """Systems by metrics; of several outputs first mean and deviation, then each."""
    lines = [f"{'system':<{width}}" + "".join(f"{name:>16}" for name in metrics.values())]
    for system in systems:
        rows = [
            [{**each.scores, **each.tokenized}[key] for key in metrics] for each in system.outputs
        ]
        if len(rows) > 1:
            spreads = [system.spread(key) for key in metrics]
            lines.append(
                f"{system.name:<{width}}" + "".join(f"{each['mean']:16.2f}" for each in spreads)
            )
            lines.append(
                f"{'  std':<{width}}" + "".join(f"{_margin(each['std']):>16}" for each in spreads)
            )
        for number, scores in enumerate(rows, 1):
            lines += _rows(f"  {number}" if len(rows) > 1 else system.name, width, scores)
    return lines


def _rows(name: str, width: int, scores: List[Score]) -> List[str]:
    """An output's scores and, after a test, confidence intervals and p-values, a line each."""
    rows = [f"{name:<{width}}" + "".join(f"{score.score:16.2f}" for score in scores)]
    if scores[0].ci is not None:
        rows.append(f"{'  95%':<{width}}" + "".join(f"{_margin(s.ci):>16}" for s in scores))
    if scores[0].p_value is not None:
        rows.append(f"{'  p':<{width}}" + "".join(f"{score.p_value:16.4f}" for score in scores))
    return rows


def _margin(value: Optional[float]) -> str:
    return f"± {value:.2f}"


def _length_table(evaluation: Evaluation, width: int) -> Iterator[str]:
    yield f"BLEU by source length, in {evaluation.length_unit} (10-20 is 10 to 19):"
    yield ""
    yield f"{'system':<{width}}" + "".join(f"{name:>9}" for name in BUCKETS)
    yield f"{'segments':<{width}}" + "".join(f"{n:>9,}" for n in evaluation.lengths or ())
    for system in evaluation.systems:
        told = ("–" if bleu is None else f"{bleu:.2f}" for bleu in system.by_length or ())
        yield f"{system.name:<{width}}" + "".join(f"{each:>9}" for each in told)


def _tests(evaluation: Evaluation, width: int) -> Iterator[str]:
    yield (
        f"p, the primary test: paired bootstrap against {evaluation.baseline}, "
        f"{evaluation.resamples:,} resamples, seed {evaluation.seed}; the probability of "
        "such a difference if there is none"
    )
    yield ""
    yield (
        "sign test (Collins et al. 2005) against the same, on BLEU: sentences that raise or lower "
        "the baseline's corpus BLEU when put in place of its own; ties count for neither; two-sided"
    )
    yield ""
    yield f"{'system':<{width}}{'better':>9}{'worse':>9}{'ties':>9}{'p':>9}"
    for system in evaluation.systems:
        for number, output in enumerate(system.outputs, 1):
            test = output.sign_test
            if test is not None:
                name = f"{system.name} {number}" if len(system.outputs) > 1 else system.name
                p_value = "<0.0001" if test.p_value < 0.00005 else f"{test.p_value:.4f}"
                yield (
                    f"{name:<{width}}{test.better:>9,}{test.worse:>9,}{test.ties:>9,}{p_value:>9}"
                )
