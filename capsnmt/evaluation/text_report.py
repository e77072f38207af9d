"""An evaluation as tables for the terminal."""

from __future__ import annotations

from statistics import fmean
from typing import Iterable, Iterator, List, Mapping, Optional, Sequence

from capsnmt.evaluation.compare_mt import PAGE, SAMPLE_RATIO
from capsnmt.evaluation.scores import (
    COMPARABLE,
    METRICS,
    Evaluation,
    OutputScores,
    SystemScores,
    Test,
    digits,
    mean_by_length,
)
from capsnmt.evaluation.settings import CompareMT


def as_text(evaluation: Evaluation) -> str:
    """Return the evaluation as tables, with the signatures below them."""
    width = max(len("system"), *(len(system.name) for system in evaluation.systems))
    reference = evaluation.reference or "the T- lines"
    lines = [f"{evaluation.segments:,} segments, reference: {reference}", ""]
    lines += _score_table(evaluation.systems, METRICS, width)
    scores = evaluation.systems[0].outputs[0].scores
    lines += ["", *(f"{name:<8}{scores[key].signature}" for key, name in METRICS.items())]
    if "tok:13a" in scores["bleu"].signature:
        lines.append("BLEU is also that of mteval-v13a.pl -c: same tokeniser and smoothing")
    tokenised = [kind for kind in COMPARABLE if kind in scores]
    if tokenised:
        lines += ["", "tokenised BLEU, not comparable with the scores above:", ""]
        lines += _score_table(evaluation.systems, {kind: kind for kind in tokenised}, width)
        lines.append("")
        for kind in tokenised:
            lines += [f"{kind}: {COMPARABLE[kind]}", f"  {scores[kind].signature}"]
    means = {name: name for name in scores if name not in METRICS and name not in COMPARABLE}
    if means:
        lines += ["", "means of the scores of all segments:", ""]
        lines += [*_score_table(evaluation.systems, means, width), ""]
        lines += [f"{name}: {scores[name].signature}" for name in means]
    if evaluation.segments_by_length:
        lines += ["", *_length_table(evaluation, width)]
    if evaluation.test is not None:
        lines += ["", *_tests(evaluation.systems, evaluation.test, width)]
    return "\n".join(lines)


def compare_mt_note(settings: CompareMT) -> str:
    """Return a paragraph about a report of compare-mt."""
    return (
        f"\ncompare-mt's report on the first output of each system: {settings.folder / PAGE}. Its "
        f"bootstrap ({settings.samples:,} resamples of {SAMPLE_RATIO:.0%} of the segments, seed "
        f"{settings.seed}) is a different test: do not mix the two"
    )


def _score_table(
    systems: Sequence[SystemScores], metrics: Mapping[str, str], width: int
) -> List[str]:
    """Systems by metrics; for several outputs means and deviations first, then each output."""
    lines = [_row("system", width, metrics.values())]
    for system in systems:
        several = len(system.outputs) > 1
        if several:
            spreads = {key: system.spread(key) for key in metrics}
            means = {key: each.mean for key, each in spreads.items()}
            deviations = {key: each.std for key, each in spreads.items()}
            lines.append(_row(system.name, width, _numbers(means)))
            lines.append(_row("  std", width, _numbers(deviations, "± ")))
            deltas = {
                key: [d for output in system.outputs if (d := output.scores[key].delta) is not None]
                for key in metrics
            }
            if all(deltas.values()):
                means = {key: fmean(found) for key, found in deltas.items()}
                lines.append(_row("  Δ", width, _numbers(means, sign="+")))
        for number, output in enumerate(system.outputs, 1):
            lines += _rows(f"  {number}" if several else system.name, width, output, metrics)
    return lines


def _rows(name: str, width: int, output: OutputScores, metrics: Iterable[str]) -> Iterator[str]:
    """The scores of an output and, after a test, intervals, differences, p-values."""
    scores = {key: output.scores[key] for key in metrics}
    yield _row(name, width, _numbers({key: score.score for key, score in scores.items()}))
    intervals = {key: score.ci for key, score in scores.items()}
    deltas = {key: score.delta for key, score in scores.items()}
    p_values = [score.p_value for score in scores.values()]
    if None not in intervals.values():
        yield _row("  95%", width, _numbers(intervals, "± "))
    if None not in deltas.values():
        yield _row("  Δ", width, _numbers(deltas, sign="+"))
    if None not in p_values:
        yield _row("  p", width, (f"{p_value:.4f}" for p_value in p_values))


def _numbers(
    values: Mapping[str, Optional[float]], before: str = "", sign: str = ""
) -> Iterator[str]:
    """Numbers with the digits of their metrics."""
    for metric, value in values.items():
        yield f"{before}{value:{sign}.{digits(metric)}f}"


def _row(name: str, width: int, cells: Iterable[str]) -> str:
    return f"{name:<{width}}" + "".join(f"{cell:>16}" for cell in cells)


def _length_table(evaluation: Evaluation, width: int) -> Iterator[str]:
    segments = evaluation.segments_by_length
    yield f"BLEU by source length, in {evaluation.length_unit} (10-20 is 10 to 19):"
    yield ""
    yield f"{'system':<{width}}" + "".join(f"{name:>9}" for name in segments)
    yield f"{'segments':<{width}}" + "".join(f"{number:>9,}" for number in segments.values())
    for system in evaluation.systems:
        bleu = mean_by_length(system.outputs).values()
        yield f"{system.name:<{width}}" + "".join(f"{each:>9.2f}" for each in bleu)


def _tests(systems: Sequence[SystemScores], test: Test, width: int) -> Iterator[str]:
    baseline = test.baseline
    yield (
        f"p, the primary test: {test.in_words}, against {baseline}; the probability of "
        "a difference at least this large if there is none. Δ: the difference to "
        f"{baseline}"
    )
    yield ""
    yield (
        f"sign test (Collins et al. 2005) against {baseline}, on BLEU: sentences that raise "
        "or lower the corpus BLEU of the baseline when they replace its own; ties count for "
        "neither side; two-sided"
    )
    yield ""
    yield f"{'system':<{width}}{'better':>9}{'worse':>9}{'ties':>9}{'p':>9}"
    for system in systems:
        for number, output in enumerate(system.outputs, 1):
            sign = output.sign_test
            if sign:
                name = f"{system.name} {number}" if len(system.outputs) > 1 else system.name
                p_value = "<0.0001" if sign.p_value < 0.00005 else f"{sign.p_value:.4f}"
                yield (
                    f"{name:<{width}}{sign.better:>9,}{sign.worse:>9,}{sign.ties:>9,}{p_value:>9}"
                )
