"""All scores of a test set, with signatures and tests."""

from __future__ import annotations

import re
from typing import Iterable, Iterator, List, Mapping, Sequence

from capsnmt.evaluation.metrics import COMPARABLE
from capsnmt.evaluation.scores import Score, common_metrics
from capsnmt.report.cells import p_cell
from capsnmt.report.elements import Code, Element, Heading, Inline, Listing, Paragraph, Table
from capsnmt.runs.systems import p_of
from capsnmt.runs.translation import FinishedTranslation

TEST = re.compile(r"(bs|ar):\d+\|seed:\d+\|")


def scores(
    runs: Sequence[FinishedTranslation], names: Sequence[str], test_set: str
) -> Iterator[Element]:
    """Yield the scores of every run on one test set."""
    evaluations = [run.scores[test_set] for run in runs]
    title = f"{test_set}: {evaluations[0].reference.segments:,} sentences"
    yield Heading(title)
    metrics = common_metrics([run.output(test_set) for run in runs])
    kinds = [kind for kind in COMPARABLE if all(kind in _tokenized(run, test_set) for run in runs)]
    signs = [run.output(test_set).sign_test for run in runs]
    header = ["system", *metrics.values(), *(f"p ({name})" for name in metrics.values())]
    header += [*(["p (sign test)"] if any(signs) else []), *kinds]
    yield Table(
        f"All scores on {title}",
        header,
        [
            [
                name,
                *(f"{run.output(test_set).score(metric).score:.2f}" for metric in metrics),
                *(p_cell(p_of(run, test_set, metric)) for metric in metrics),
                *([p_cell(None if sign is None else sign.p_value)] if any(signs) else []),
                *(f"{_tokenized(run, test_set)[kind].score:.2f}" for kind in kinds),
            ]
            for run, name, sign in zip(runs, names, signs)
        ],
        numeric=1,
    )
    yield Listing(list(_signatures(runs, test_set, metrics, kinds)))
    test = next((each.test for each in evaluations if each.test is not None), None)
    if test is not None:
        sign_test = " Sign test: Collins et al. 2005, on BLEU, two-sided." if any(signs) else ""
        yield Paragraph(
            f"p: {test}, against {test.baseline}; this is the primary test. Lower TER is "
            f"better.{sign_test}"
        )


def _tokenized(run: FinishedTranslation, test_set: str) -> Mapping[str, Score]:
    return run.output(test_set).tokenized


def _signatures(
    runs: Sequence[FinishedTranslation],
    test_set: str,
    metrics: Mapping[str, str],
    kinds: Sequence[str],
) -> Iterator[List[Inline]]:
    for metric, label in metrics.items():
        # the test's part of a signature does not affect the score, and the baseline has none
        found = {TEST.sub("", run.output(test_set).score(metric).signature) for run in runs}
        yield [f"{label}: ", *_codes(found)]
    for kind in kinds:
        found = {_tokenized(run, test_set)[kind].signature for run in runs}
        yield [f"{kind}, comparable only with {COMPARABLE[kind]}: ", *_codes(found)]


def _codes(signatures: Iterable[str]) -> Iterator[Inline]:
    for number, signature in enumerate(sorted(signatures)):
        if number:
            yield " and "
        yield Code(signature)
