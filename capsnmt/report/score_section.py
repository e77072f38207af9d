"""All scores of a test set, with signatures and tests."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Mapping, Sequence, Set

from capsnmt.evaluation.scores import COMPARABLE, common_metrics
from capsnmt.report.cells import MINUS, NONE, difference_cell, p_cell, score_cell
from capsnmt.report.elements import Code, Element, Heading, Inline, Listing, Paragraph, Table, Text
from capsnmt.runs.finished import FinishedRun


def scores(runs: Sequence[FinishedRun], names: Sequence[str], test_set: str) -> Iterator[Element]:
    """Yield the scores of every run on one test set."""
    outputs = [run.output(test_set) for run in runs]
    title = f"{test_set}: {runs[0].scores[test_set].segments:,} sentences"
    yield Heading(title)
    metrics = common_metrics(outputs)
    kinds = [kind for kind in COMPARABLE if all(kind in output.scores for output in outputs)]
    yield Table(
        f"All scores on {title}",
        ["system", *metrics.values(), *kinds],
        [
            [name, *(score_cell(output.scores[key].score, key) for key in [*metrics, *kinds])]
            for name, output in zip(names, outputs)
        ],
        numeric=1,
    )
    yield Listing(list(_signatures(runs, test_set, metrics, kinds)))
    yield from _differences(runs, names, test_set, metrics)


def _differences(
    runs: Sequence[FinishedRun],
    names: Sequence[str],
    test_set: str,
    metrics: Mapping[str, str],
) -> Iterator[Element]:
    """Yield the difference of every tested run to its baseline, by each metric."""
    rows: List[List[Text]] = []
    tests, sign_tests = set(), False
    for run, name in zip(runs, names):
        test, output = run.scores[test_set].test, run.output(test_set)
        if test is None or test.baseline == run.row:
            continue
        tests.add(test.in_words)
        pair = f"{name} {MINUS} {test.baseline}"
        for key, metric in metrics.items():
            score = output.scores[key]
            delta = difference_cell(score.delta, key)
            rows.append([pair, metric, delta, p_cell(score.p_value)])
        if output.sign_test:
            sign_tests = True
            p_value = p_cell(output.sign_test.p_value)
            rows.append([pair, "BLEU, sign test", NONE, p_value])
    if not rows:
        return
    yield Table(f"Differences on {test_set}", ["difference", "metric", "Δ", "p"], rows, numeric=2)
    note = f"p: {' and '.join(sorted(tests))}; this is the primary test. Lower TER is better."
    if sign_tests:
        note += " Sign test: Collins et al. 2005, on BLEU, two-sided."
    yield Paragraph(note)


def signatures_of(runs: Sequence[FinishedRun], test_set: str, metric: str) -> Set[str]:
    """Return the signatures of a metric."""
    return {run.output(test_set).scores[metric].signature for run in runs}


def _signatures(
    runs: Sequence[FinishedRun],
    test_set: str,
    metrics: Mapping[str, str],
    kinds: Sequence[str],
) -> Iterator[List[Inline]]:
    for metric, label in metrics.items():
        yield [f"{label}: ", *_codes(signatures_of(runs, test_set, metric))]
    for kind in kinds:
        found = signatures_of(runs, test_set, kind)
        yield [f"{kind}, comparable only with {COMPARABLE[kind]}: ", *_codes(found)]


def _codes(signatures: Iterable[str]) -> Iterator[Inline]:
    for number, signature in enumerate(sorted(signatures)):
        if number:
            yield " and "
        yield Code(signature)
