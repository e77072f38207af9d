"""An evaluation as tables for the terminal."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Mapping, Optional, Sequence

from capsnmt.evaluation.compare_mt import PAGE, SAMPLE_RATIO
from capsnmt.evaluation.metrics import COMPARABLE, METRICS, digits
from capsnmt.evaluation.scores import Evaluation, OutputScores, SourceLengths, SystemScores
from capsnmt.evaluation.settings import CompareMT


def as_text(evaluation: Evaluation) -> str:
    """Return the evaluation as tables, with the signatures below them."""
    width = max(len("system"), *(len(system.name) for system in evaluation.systems))
    reference = evaluation.reference
    lines = [f"{reference.segments:,} segments, reference: {reference.source}", ""]
    lines += _score_table(evaluation.systems, METRICS, width)
    first = evaluation.systems[0].outputs[0]
    lines += ["", *(f"{name:<8}{first.score(key).signature}" for key, name in METRICS.items())]
    if "tok:13a" in first.bleu.signature:
        lines.append("BLEU is also that of mteval-v13a.pl -c: same tokeniser and smoothing")
    if first.tokenized:
        lines += ["", "tokenised BLEU, not comparable with the scores above:", ""]
        lines += _score_table(evaluation.systems, {kind: kind for kind in first.tokenized}, width)
        lines.append("")
        for kind, score in first.tokenized.items():
            lines += [f"{kind}: {COMPARABLE[kind]}", f"  {score.signature}"]
    if first.segment_means:
        lines += ["", "means of the scores of all segments:", ""]
        means = {name: name for name in first.segment_means}
        lines += [*_score_table(evaluation.systems, means, width), ""]
        lines += [f"{name}: {score.signature}" for name, score in first.segment_means.items()]
    if evaluation.lengths is not None:
        lines += ["", *_length_table(evaluation.systems, evaluation.lengths, width)]
    if evaluation.test is not None:
        lines += ["", *_tests(evaluation, width)]
    return "\n".join(lines)


def compare_mt_note(settings: CompareMT) -> str:
    """Return a paragraph about a report of compare-mt."""
    return (
        f"\ncompare-mt's report on the first output of each system: {settings.folder / PAGE}. Its "
        f"bootstrap ({settings.resamples:,} resamples of {SAMPLE_RATIO:.0%} of the segments, seed "
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
            deltas = {key: system.mean_delta(key) for key in metrics}
            if None not in deltas.values():
                lines.append(_row("  Δ", width, _numbers(deltas, sign="+")))
        for number, output in enumerate(system.outputs, 1):
            lines += _rows(f"  {number}" if several else system.name, width, output, metrics)
    return lines


def _rows(name: str, width: int, output: OutputScores, metrics: Iterable[str]) -> Iterator[str]:
    """The scores of an output and, after a test, intervals, differences, p-values."""
    yield _row(name, width, _numbers({key: output.score(key).score for key in metrics}))
    tests = {key: output.difference(key) for key in metrics}
    intervals = {key: test.ci for key, test in tests.items()}
    deltas = {key: test.delta for key, test in tests.items()}
    p_values = [test.p_value for test in tests.values()]
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


def _length_table(
    systems: Sequence[SystemScores], lengths: SourceLengths, width: int
) -> Iterator[str]:
    yield f"BLEU by source length, in {lengths.unit} (10-20 is 10 to 19):"
    yield ""
    yield f"{'system':<{width}}" + "".join(f"{name:>9}" for name in lengths.buckets)
    yield f"{'segments':<{width}}" + "".join(f"{number:>9,}" for number in lengths.segments)
    for system in systems:
        cells = ("–" if bleu is None else f"{bleu:.2f}" for bleu in system.by_length or ())
        yield f"{system.name:<{width}}" + "".join(f"{cell:>9}" for cell in cells)


def _tests(evaluation: Evaluation, width: int) -> Iterator[str]:
    baseline = evaluation.baseline
    yield (
        f"p, the primary test: {evaluation.test_in_words}, against {baseline}; the probability of "
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
    for system in evaluation.systems:
        for number, output in enumerate(system.outputs, 1):
            sign = output.sign_test
            if sign:
                name = f"{system.name} {number}" if len(system.outputs) > 1 else system.name
                p_value = "<0.0001" if sign.p_value < 0.00005 else f"{sign.p_value:.4f}"
                yield (
                    f"{name:<{width}}{sign.better:>9,}{sign.worse:>9,}{sign.ties:>9,}{p_value:>9}"
                )
