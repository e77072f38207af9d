"""The results: caveats, and the table of the papers."""

from __future__ import annotations

from typing import Iterator, List, Sequence

from capsnmt.evaluation.scores import common_metrics
from capsnmt.report.cells import NONE, deviation_note, difference_cell, mean_cell
from capsnmt.report.elements import Element, Mark, Paragraph, Strong, Table, Text
from capsnmt.report.score_section import signatures_of
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.seeds import LEVELS, TrainedRow

ONE_SEED = (
    " Every system was trained once. Two trainings of one system that differ only in the seed "
    "often differ as much as two systems do. The significance test says whether other sentences "
    "would give the same order; it does not say whether other trainings would. All results are "
    "reported, whichever system they favour."
)


def caveats(runs: Sequence[FinishedRun]) -> Iterator[Element]:
    """Yield what a reader must know before the results."""
    updates = {run.curve.updates for run in runs}
    if len(updates) > 1:
        budgets = " and ".join(f"{number:,}" for number in sorted(updates))
        yield Paragraph(
            [Strong("Not the same budget:"), f" the systems were trained for {budgets} updates."]
        )
    if len({(run.row, run.seed) for run in runs}) == len({run.row for run in runs}):
        yield Paragraph([Strong("One seed proves nothing."), ONE_SEED])
    different = ", ".join(_differing(runs))
    if different:
        yield Paragraph([Strong("Not comparable:"), f" the systems have different {different}."])


def _differing(runs: Sequence[FinishedRun]) -> Iterator[str]:
    """Yield what must be equal for a comparison (Marie et al. 2021), and is not."""
    for test_set in runs[0].scores:
        for key, name in common_metrics([run.output(test_set) for run in runs]).items():
            if len(signatures_of(runs, test_set, key)) > 1:
                yield f"signatures of {name} on {test_set}"
        if len({run.scores[test_set].reference for run in runs}) > 1:
            yield f"references of {test_set}"
    if any(run.training.vocabulary != runs[0].training.vocabulary for run in runs):
        yield "dictionaries"


def results(systems: Sequence[TrainedRow]) -> Iterator[Element]:
    """Yield the table of the papers: parameters, training speed, BLEU and its difference."""
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
                _parameters_cell(system, baseline),
                _speed_cell(system, baseline),
                *(cell for name in test_sets for cell in _bleu_cells(system, baseline, name)),
            ]
            for system in systems
        ],
        numeric=1,
    )
    speed = "Training speed is in target tokens per second"
    if any(system.speed_against(baseline) is None for system in others):
        speed += (
            "; it has no ratio if device or number of threads differ from the first system's, or "
            "were not recorded."
        )
    else:
        speed += ", and as a ratio."
    yield Paragraph(
        f"BLEU is detokenised sacreBLEU. Δ and × compare with {baseline.name}."
        f"{deviation_note(max(len(system.runs) for system in systems))} {speed}"
    )
    yield Paragraph(_legend(systems, test_sets))


def _legend(systems: Sequence[TrainedRow], test_sets: Sequence[str]) -> str:
    baseline, *others = systems
    levels = ", ".join(f"{mark}: p < {level}" for mark, level in reversed(LEVELS.items()))
    tests = {
        test.in_words
        for system in others
        for run in system.runs
        for test_set in test_sets
        if (test := run.scores[test_set].test) is not None
    }
    sentence = f"{levels}, for the difference in BLEU to {baseline.name}"
    if tests:
        sentence += f" by {' and '.join(sorted(tests))}"
    if any(len(system.runs) > 1 for system in systems):
        sentence += ", for every seed"
    untested = [
        system.name
        for system in others
        if any(system.p_values(test_set, baseline) is None for test_set in test_sets)
    ]
    sentence += "; no mark: not significant"
    if untested:
        sentence += f", or not tested ({', '.join(untested)}: score with --baseline)"
    return f"{sentence}."


def _parameters_cell(system: TrainedRow, baseline: TrainedRow) -> str:
    difference = system.parameters - baseline.parameters
    total = f"{system.parameters / 1e6:.2f}M"
    if system is baseline:
        return total
    small = abs(difference) < 1e4
    return f"{total} ({difference:+,})" if small else f"{total} ({difference / 1e6:+.2f}M)"


def _speed_cell(system: TrainedRow, baseline: TrainedRow) -> str:
    own = system.tokens_per_second
    if own is None:
        return NONE
    ratio = None if system is baseline else system.speed_against(baseline)
    return f"{own:,.0f}/s" if ratio is None else f"{own:,.0f}/s ({ratio:.2f}×)"


def _bleu_cells(system: TrainedRow, baseline: TrainedRow, test_set: str) -> List[Text]:
    """BLEU, and its difference to the baseline with the mark of its significance."""
    own, other = system.score(test_set), baseline.score(test_set)
    if system is baseline:
        return [mean_cell(own), NONE]
    difference = difference_cell(round(own.mean, 2) - round(other.mean, 2))
    mark = system.mark(test_set, baseline)
    marked: Text = [difference, Mark(mark, f"p < {LEVELS[mark]}")] if mark else difference
    return [mean_cell(own), marked]
