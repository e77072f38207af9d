"""An evaluation as tables for the terminal."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Mapping, Optional, Sequence

from tabulate import tabulate

from capsnmt.evaluation.scores import (
    COMPARABLE,
    METRICS,
    Evaluation,
    SystemScores,
    Test,
    digits,
)


def as_text(evaluation: Evaluation) -> str:
    """Return the evaluation as tables, with the signatures below them."""
    scores = evaluation.systems[0].outputs[0].scores
    reference = evaluation.reference or "the T- lines"
    paragraphs = [
        f"{evaluation.segments:,} segments, reference: {reference}",
        _score_table(evaluation.systems, METRICS),
        "\n".join(f"{name:<8}{scores[key].signature}" for key, name in METRICS.items()),
    ]
    if "tok:13a" in scores["bleu"].signature:
        paragraphs[-1] += "\nBLEU is also that of mteval-v13a.pl -c: same tokeniser and smoothing"
    tokenised = {kind: kind for kind in COMPARABLE if kind in scores}
    if tokenised:
        paragraphs += [
            "tokenised BLEU, not comparable with the scores above:",
            _score_table(evaluation.systems, tokenised),
            "\n".join(
                f"{kind}: {COMPARABLE[kind]}\n  {scores[kind].signature}" for kind in tokenised
            ),
        ]
    means = {name: name for name in scores if name not in METRICS and name not in COMPARABLE}
    if means:
        paragraphs += [
            "means of the scores of all segments:",
            _score_table(evaluation.systems, means),
            "\n".join(f"{name}: {scores[name].signature}" for name in means),
        ]
    if evaluation.segments_by_length:
        paragraphs += [
            f"BLEU by source length, in {evaluation.length_unit} (10-20 is 10 to 19):",
            _length_table(evaluation),
        ]
    if evaluation.test is not None:
        paragraphs += _tests(evaluation.systems, evaluation.test)
    return "\n\n".join(paragraphs)


def _score_table(systems: Sequence[SystemScores], metrics: Mapping[str, str]) -> str:
    """Systems by metrics."""
    rows = [row for system in systems for row in _score_rows(system, metrics)]
    return _table(["system", *metrics.values()], [row for row in rows if any(row[1:])])


def _score_rows(system: SystemScores, metrics: Iterable[str]) -> Iterator[List[str]]:
    """Yield the scores of a system and, after a test, intervals, differences and p-values.

    For several outputs means and deviations come first, then each output.
    """

    def row(name: str, values: Iterable[Optional[float]], sign: str = "") -> List[str]:
        numbers = zip(metrics, values)
        return [name, *("" if x is None else f"{x:{sign}.{digits(key)}f}" for key, x in numbers)]

    several = len(system.outputs) > 1
    if several:
        spreads = [system.spread(key) for key in metrics]
        yield row(system.name, [each.mean for each in spreads])
        yield row(f"{system.name} ± std", [each.std for each in spreads])
        yield row(f"{system.name} Δ", [system.mean_delta(key) for key in metrics], "+")
    for number, output in enumerate(system.outputs, 1):
        name = f"{system.name} {number}" if several else system.name
        scores = [output.scores[key] for key in metrics]
        yield row(name, [each.score for each in scores])
        yield row(f"{name} ± 95%", [each.ci for each in scores])
        yield row(f"{name} Δ", [each.delta for each in scores], "+")
        yield [f"{name} p", *("" if x.p_value is None else f"{x.p_value:.4f}" for x in scores)]


def _length_table(evaluation: Evaluation) -> str:
    segments = evaluation.segments_by_length
    rows = [["segments", *(f"{number:,}" for number in segments.values())]]
    for system in evaluation.systems:
        bleu = (f"{each:.2f}" for each in system.bleu_by_length.values())
        rows.append([system.name, *bleu])
    return _table(["system", *segments], rows)


def _tests(systems: Sequence[SystemScores], test: Test) -> Iterator[str]:
    yield (
        f"p, the primary test: {test.in_words}, against {test.baseline}; the probability of a "
        f"difference at least this large if there is none. Δ: the difference to {test.baseline}"
    )
    yield (
        f"sign test (Collins et al. 2005) against {test.baseline}, on BLEU: sentences that raise "
        "or lower the corpus BLEU of the baseline when they replace its own; ties count for "
        "neither side; two-sided"
    )
    rows = []
    for system in systems:
        for number, output in enumerate(system.outputs, 1):
            sign = output.sign_test
            if sign is not None:
                name = f"{system.name} {number}" if len(system.outputs) > 1 else system.name
                p_value = "<0.0001" if sign.p_value < 0.00005 else f"{sign.p_value:.4f}"
                counts = (f"{count:,}" for count in (sign.better, sign.worse, sign.ties))
                rows.append([name, *counts, p_value])
    yield _table(["system", "better", "worse", "ties", "p"], rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose names are on the left and whose numbers are on the right."""
    sides = ("left", *["right"] * (len(header) - 1))
    return tabulate(rows, header, tablefmt="plain", colalign=sides, disable_numparse=True)
