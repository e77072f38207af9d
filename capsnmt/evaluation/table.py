"""An evaluation as tables for the terminal."""

from __future__ import annotations

import statistics
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from tabulate import tabulate

from capsnmt.evaluation.scores import (
    COMPARABLE,
    METRICS,
    Evaluation,
    OutputScores,
    SystemScores,
    digits,
)


def as_text(evaluation: Evaluation) -> str:
    """Return the evaluation as tables, with the signatures below them."""
    systems, test = evaluation.systems, evaluation.test
    scores = systems[0].outputs[0].scores
    primary = {key: name for key, name in METRICS.items() if key in scores}
    tokenised = {key: key for key in scores if key in COMPARABLE}
    means = {key: key for key in scores if key not in METRICS and key not in COMPARABLE}
    paragraphs = []
    names = ", ".join(evaluation.references) or evaluation.reference
    reference = "references" if evaluation.references else "reference"
    for title, metrics in (
        (f"{evaluation.segments:,} segments, {reference}: {names}", primary),
        ("tokenised BLEU, not comparable with the scores above:", tokenised),
        ("means of the scores of all segments:", means),
    ):
        if metrics:
            signatures = [f"{name}: {scores[key].signature}" for key, name in metrics.items()]
            notes = [f"{key}: {COMPARABLE[key]}" for key in metrics if key in COMPARABLE]
            if "tok:13a" in signatures[0]:
                notes = ["BLEU is also that of mteval-v13a.pl -c: same tokeniser and smoothing"]
            rows = [row for system in systems for row in _score_rows(system, metrics)]
            scored = _table(["system", *metrics.values()], [row for row in rows if any(row[1:])])
            paragraphs += [title, scored, "\n".join(signatures + notes)]
    if evaluation.segments_by_length:
        paragraphs += [
            f"BLEU by source length, in {evaluation.length_unit} (10-20 is 10 to 19):",
            _length_table(systems, evaluation.segments_by_length),
        ]
    if test is not None:
        paragraphs += [
            f"p, the primary test: {test.in_words}, against {test.baseline}; the probability of a "
            f"difference at least this large if there is none. Δ: the difference",
            f"sign test (Collins et al. 2005) against {test.baseline}, on BLEU: sentences that "
            "raise or lower the corpus BLEU of the baseline when they replace its own; ties count "
            "for neither side; two-sided",
            _table(["system", "better", "worse", "ties", "p"], list(_sign_tests(systems))),
        ]
    return "\n\n".join(paragraphs)


def _outputs(system: SystemScores) -> List[Tuple[str, OutputScores]]:
    """Return the outputs of a system, numbered if there are several."""
    if len(system.outputs) == 1:
        return [(system.name, system.outputs[0])]
    return [(f"{system.name} {number}", each) for number, each in enumerate(system.outputs, 1)]


def _score_rows(system: SystemScores, metrics: Iterable[str]) -> Iterator[List[str]]:
    """Yield the scores of a system and, after a test, intervals, differences and p-values.

    For several outputs means and deviations come first, then each output.
    """

    def row(name: str, values: Iterable[Optional[float]], sign: str = "") -> List[str]:
        numbers = zip(metrics, values)
        return [name, *("" if x is None else f"{x:{sign}.{digits(key)}f}" for key, x in numbers)]

    if len(system.outputs) > 1:
        spreads = [system.spread(key) for key in metrics]
        yield row(system.name, [each.mean for each in spreads])
        yield row(f"{system.name} ± std", [each.std for each in spreads])
        yield row(f"{system.name} Δ", [_mean_delta(system, key) for key in metrics], "+")
    for name, output in _outputs(system):
        scores = [output.scores[key] for key in metrics]
        yield row(name, [each.score for each in scores])
        yield row(f"{name} ± 95%", [each.ci for each in scores])
        yield row(f"{name} Δ", [each.delta for each in scores], "+")
        yield [f"{name} p", *("" if x.p_value is None else f"{x.p_value:.4f}" for x in scores)]


def _mean_delta(system: SystemScores, metric: str) -> Optional[float]:
    deltas = [output.scores[metric].delta for output in system.outputs]
    tested = [delta for delta in deltas if delta is not None]
    return statistics.fmean(tested) if tested else None


def _length_table(systems: Sequence[SystemScores], segments: Dict[str, int]) -> str:
    rows = [["segments", *(f"{number:,}" for number in segments.values())]]
    for system in systems:
        found = [[each.bleu_by_length[bucket] for each in system.outputs] for bucket in segments]
        rows.append([system.name, *(f"{statistics.fmean(values):.2f}" for values in found)])
    return _table(["system", *segments], rows)


def _sign_tests(systems: Sequence[SystemScores]) -> Iterator[List[str]]:
    for system in systems:
        for name, output in _outputs(system):
            sign = output.sign_test
            if sign is not None:
                p_value = "<0.0001" if sign.p_value < 0.00005 else f"{sign.p_value:.4f}"
                yield [name, f"{sign.better:,}", f"{sign.worse:,}", f"{sign.ties:,}", p_value]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose names are on the left and whose numbers are on the right."""
    sides = ("left", *["right"] * (len(header) - 1))
    return tabulate(rows, header, tablefmt="plain", colalign=sides, disable_numparse=True)
