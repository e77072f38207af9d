"""The report's results: in sentences, as the table of the papers, and every score."""

from __future__ import annotations

import re
from typing import Any, Iterator, List, Mapping, Optional, Sequence

from capsnmt.evaluation.document import COMPARABLE, METRICS, Evaluation, Score
from capsnmt.report.blocks import (
    Block,
    Code,
    Heading,
    Listing,
    Mark,
    Paragraph,
    Strong,
    Table,
    Text,
)
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.systems import LEVELS, System, p_of

SIGNIFICANT = 0.05
BOOTSTRAP = re.compile(r"bs:\d+\|seed:\d+\|")
NONE, MINUS = "–", "−"

ONE_SEED = (
    " Every system here was trained once. Two trainings of the same system that differ in the seed "
    "alone often differ as much, and the test tells only whether other sentences would give the "
    "same order, not whether other trainings would. Whatever came out is reported, whichever "
    "system it favours."
)


def summary(runs: Sequence[FinishedRun], names: Sequence[str]) -> Iterator[Block]:
    """How far the results can be trusted: what a reader must know before the table."""
    updates = {run.curve.updates for run in runs}
    if len(updates) > 1:
        budgets = " and ".join(f"{number:,}" for number in sorted(updates))
        yield Paragraph(
            [Strong("Not the same budget:"), f" the systems were trained for {budgets} updates."]
        )
    if len({(run.row, run.seed) for run in runs}) == len({run.row for run in runs}):
        yield Paragraph([Strong("One seed proves nothing."), ONE_SEED])


def comparisons(runs: Sequence[FinishedRun], names: Sequence[str]) -> Iterator[Block]:
    """The result in sentences, each run against its baseline."""
    told = [
        _comparison(run, name, test_set, scores)
        for run, name in zip(runs, names)
        for test_set, scores in run.scores.items()
        if scores.test is not None and scores.test.baseline != run.row
    ]
    if told:
        yield Listing(told)


def _comparison(run: FinishedRun, name: str, test_set: str, scores: Evaluation) -> str:
    baseline = scores.systems[0]
    one, other = run.output(test_set).score("bleu").score, baseline.spread("bleu").mean
    difference = round(one, 2) - round(other, 2)
    told = f"{abs(difference):.2f} {'above' if difference > 0 else 'below'}"
    p_value = p_of(run, test_set)
    sentence = (
        f"{test_set}: {name} scores {one:.2f} BLEU, "
        f"{told if difference else 'the same as'} {baseline.name} ({other:.2f})"
    )
    if p_value is None:
        return f"{sentence}; the difference was not tested."
    verdict = "significant" if p_value < SIGNIFICANT else "not significant"
    return f"{sentence}; p = {p_value:.3f}, {verdict} at {SIGNIFICANT}."


def results(systems: Sequence[System]) -> Iterator[Block]:
    """The table of the papers: parameters, training speed, BLEU and its difference, marks."""
    baseline, *others = systems
    test_sets = list(baseline.runs[0].scores)
    header = ["system", "parameters", "training"]
    for test_set in test_sets:
        header += [f"{test_set} BLEU", "Δ"]
    yield Table(
        "Parameters, training speed and BLEU of every system; Δ is the difference to the first.",
        header,
        [
            [
                system.name,
                _millions(system, baseline),
                _speed(system, baseline),
                *(cell for test_set in test_sets for cell in _bleu(system, baseline, test_set)),
            ]
            for system in systems
        ],
        numeric=1,
    )
    told = [f"BLEU is detokenised sacreBLEU. Δ and × are against {baseline.name}."]
    seeds = max(len(system.runs) for system in systems)
    if seeds > 1:
        told.append(f"± is the standard deviation over seeds (n - 1), of at most {seeds}.")
    if any(system.speed_against(baseline) is None for system in others):
        told.append(
            "Training speed is in target tokens a second; where device or threads differ from the "
            "first system's, or were not recorded, it has no ratio."
        )
    else:
        told.append("Training speed is in target tokens a second, and as a ratio.")
    yield Paragraph(" ".join(told))
    yield Paragraph(_legend(systems, test_sets))


def _legend(systems: Sequence[System], test_sets: Sequence[str]) -> str:
    baseline, *others = systems
    levels = ", ".join(f"{mark}: p < {level}" for mark, level in reversed(LEVELS.items()))
    sentence = (
        f"{levels}, of the difference in BLEU to {baseline.name} by paired bootstrap resampling"
    )
    if any(len(system.runs) > 1 for system in systems):
        sentence += ", for every seed"
    untested = [
        system.name
        for system in others
        if any(system.p_values(test_set, baseline) is None for test_set in test_sets)
    ]
    sentence += "; no mark: not significant"
    if untested:
        sentence += f", and not tested for {', '.join(untested)} (score it with --baseline)"
    return f"{sentence}."


def _millions(system: System, baseline: System) -> str:
    difference = system.parameters - baseline.parameters
    told = f"{system.parameters / 1e6:.2f}M"
    if system is baseline:
        return told
    small = abs(difference) < 1e4
    return f"{told} ({difference:+,})" if small else f"{told} ({difference / 1e6:+.2f}M)"


def _speed(system: System, baseline: System) -> str:
    own = system.tokens_per_second
    if own is None:
        return NONE
    ratio = None if system is baseline else system.speed_against(baseline)
    return f"{own:,.0f}/s" if ratio is None else f"{own:,.0f}/s ({ratio:.2f}×)"


def _bleu(system: System, baseline: System, test_set: str) -> Iterator[Text]:
    own, other = system.score(test_set), baseline.score(test_set)
    deviation = "" if own.std is None else f" ± {own.std:.2f}"
    yield f"{own.mean:.2f}{deviation}"
    if system is baseline:
        yield NONE
    else:
        difference = round(own.mean, 2) - round(other.mean, 2)
        told = f"{difference:+.2f}".replace("-", MINUS)
        mark = system.mark(test_set, baseline)
        yield [told, Mark(mark, f"p < {LEVELS[mark]}")] if mark else told


def scores(runs: Sequence[FinishedRun], names: Sequence[str], test_set: str) -> Iterator[Block]:
    """One test set: every run by every metric, with signatures and tests."""
    documents = [run.scores[test_set] for run in runs]
    segments = documents[0].reference.segments
    title = f"{test_set}: {segments:,} sentences"
    yield Heading(title)
    kinds = [kind for kind in COMPARABLE if all(kind in _tokenized(run, test_set) for run in runs)]
    signs = [run.output(test_set).sign_test for run in runs]
    header = ["system", *METRICS.values(), *(f"p ({name})" for name in METRICS.values())]
    header += [*(["p (sign test)"] if any(signs) else []), *kinds]
    yield Table(
        f"All scores on {title}",
        header,
        [
            [
                name,
                *(f"{run.output(test_set).score(metric).score:.2f}" for metric in METRICS),
                *(_p(p_of(run, test_set, metric)) for metric in METRICS),
                *([_p(None if sign is None else sign.p_value)] if any(signs) else []),
                *(f"{_tokenized(run, test_set)[kind].score:.2f}" for kind in kinds),
            ]
            for run, name, sign in zip(runs, names, signs)
        ],
        numeric=1,
    )
    yield Listing(list(_signatures(runs, test_set, kinds)))
    tested = next((each.test for each in documents if each.test is not None), None)
    if tested is not None:
        sign = (
            " Sign test: Collins et al. 2005, on BLEU, two-sided, beside the primary test."
            if any(signs)
            else ""
        )
        yield Paragraph(
            f"p: paired bootstrap resampling (Koehn 2004) against {tested.baseline}, "
            f"{tested.resamples:,} resamples, seed {tested.seed}. TER: less is better.{sign}"
        )


def _tokenized(run: FinishedRun, test_set: str) -> Mapping[str, Score]:
    return run.output(test_set).tokenized


def _signatures(
    runs: Sequence[FinishedRun], test_set: str, kinds: Sequence[str]
) -> Iterator[List[Any]]:
    for metric, label in METRICS.items():
        # The test's part of a signature says nothing about the score, and the baseline has none.
        found = {BOOTSTRAP.sub("", run.output(test_set).score(metric).signature) for run in runs}
        yield [f"{label}: ", *_codes(found)]
    for kind in kinds:
        found = {_tokenized(run, test_set)[kind].signature for run in runs}
        yield [f"{kind}, comparable with {COMPARABLE[kind]} only: ", *_codes(found)]


def _codes(found: Any) -> Iterator[Any]:
    for number, signature in enumerate(sorted(found)):
        if number:
            yield " and "
        yield Code(signature)


def _p(p_value: Optional[float]) -> str:
    if p_value is None:
        return NONE
    return "< 0.001" if p_value < 0.0005 else f"{p_value:.3f}"
