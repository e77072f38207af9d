"""The tables of a report, and its numbers as text."""

from __future__ import annotations

import math
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from capsnmt.evaluation.scores import Spread, digits
from capsnmt.pages.page import Table, code, csv_text
from capsnmt.runs.finished import FinishedRun, distinct_names
from capsnmt.runs.learning_curve import clock
from capsnmt.runs.trained_rows import TrainedRow

NONE, MINUS = "–", "−"
Means = Mapping[str, Mapping[str, Spread]]  # system -> category -> its value
Runs = Mapping[str, FinishedRun]  # by the names that a report gives them


def mean_cell(value: Optional[Spread]) -> str:
    """Return mean and deviation; a dash without a value.

    >>> mean_cell(Spread(20.5, 1.25, [])), mean_cell(Spread(20.5, None, [])), mean_cell(None)
    ('20.50 ± 1.25', '20.50', '–')
    """
    if value is None:
        return NONE
    return f"{value.mean:.2f}" + ("" if value.std is None else f" ± {value.std:.2f}")


def difference_cell(difference: Optional[float], metric: str = "bleu") -> str:
    """Return a difference with its sign; a dash without a value.

    >>> difference_cell(0.5), difference_cell(-1), difference_cell(-0.01, "COMET")
    ('+0.50', '−1.00', '−0.0100')
    """
    if difference is None:
        return NONE
    return f"{difference:+.{digits(metric)}f}".replace("-", MINUS)


def p_cell(p_value: Optional[float]) -> str:
    """Return a p-value; a dash if nothing was tested.

    >>> p_cell(0.0304), p_cell(0.0001), p_cell(None)
    ('0.030', '< 0.001', '–')
    """
    if p_value is None:
        return NONE
    return "< 0.001" if p_value < 0.0005 else f"{p_value:.3f}"


def interval(one: Spread, other: Spread) -> Optional[Tuple[float, float]]:
    r"""Return Welch's 95% confidence interval of the difference of two means over seeds.

    .. math:: \bar x_1 - \bar x_2 \pm t_{0.975, \nu} \sqrt{v_1 + v_2}, \quad v_i = s_i^2 / n_i,
        \quad \nu = (v_1 + v_2)^2 / (v_1^2 / (n_1 - 1) + v_2^2 / (n_2 - 1))

    ``None`` unless both have several seeds, not all of them equal.
    """
    if one.std is None or other.std is None or one.std == other.std == 0:
        return None
    from scipy.stats import t

    sizes = [len(one.values), len(other.values)]
    v = [one.std**2 / sizes[0], other.std**2 / sizes[1]]
    freedom = sum(v) ** 2 / sum(each**2 / (n - 1) for each, n in zip(v, sizes))
    reach = float(t.ppf(0.975, freedom)) * math.sqrt(sum(v))
    difference = one.mean - other.mean
    return difference - reach, difference + reach


def results(rows: Sequence[TrainedRow], test_sets: Sequence[str]) -> Table:
    """Return the table of the papers: parameters, training speed, BLEU and its difference."""
    baseline = rows[0]
    several = len(baseline.runs) > 1 and any(len(row.runs) > 1 for row in rows[1:])
    header = ["system", "parameters", "training"]
    for test_set in test_sets:
        header += [f"{test_set} BLEU", "Δ", *(["95% interval of Δ"] if several else [])]
    lines = []
    for row in rows:
        learned, speed = row.runs[0].parameters, row.tokens_per_second
        parameters = f"{learned / 1e6:.2f}M"
        ratio = None if row is baseline else row.speed_against(baseline)
        if row is not baseline:
            more = learned - baseline.runs[0].parameters
            parameters += f" ({more:+,})" if abs(more) < 1e4 else f" ({more / 1e6:+.2f}M)"
        training = NONE if speed is None else f"{speed:,.0f}/s"
        lines.append([row.name, parameters, training + ("" if not ratio else f" ({ratio:.2f}×)")])
        for test_set in test_sets:
            ours, theirs = row.score(test_set), baseline.score(test_set)
            found = None if row is baseline else interval(ours, theirs)
            difference = NONE
            if row is not baseline:
                difference = difference_cell(ours.mean - theirs.mean)
                difference += row.mark(test_set, baseline)
            lines[-1] += [mean_cell(ours), difference]
            if several:
                lines[-1].append(" to ".join(map(difference_cell, found)) if found else NONE)
    return Table(header, lines, numeric=1)


def scores(runs: Runs, test_set: str, metrics: Mapping[str, str]) -> Table:
    """Return all scores of every run on a test set; ``metrics`` maps their keys to names."""
    lines = [
        [name, *(f"{run.output(test_set).scores[key].score:.{digits(key)}f}" for key in metrics)]
        for name, run in runs.items()
    ]
    return Table(["system", *metrics.values()], lines, numeric=1)


def differences(runs: Runs, test_set: str, metrics: Mapping[str, str]) -> Table:
    """Return the difference of every tested run to its baseline, by each metric, with p."""
    header = ["difference"]
    for metric in metrics.values():
        header += [f"Δ {metric}", "p"]
    lines: List[List[str]] = []
    for name, run in runs.items():
        test, output = run.scores[test_set].test, run.output(test_set)
        if test is not None and test.baseline != run.row:
            line = [f"{name} {MINUS} {test.baseline}"]
            for key in metrics:
                found = output.scores[key]
                line += [difference_cell(found.delta, key), p_cell(found.p_value)]
            lines.append([*line, p_cell(output.sign_test.p_value if output.sign_test else None)])
    return Table([*header, "p of the sign test"], lines, numeric=1)


def by_category(means: Means, labels: Sequence[str]) -> Table:
    """Return the mean of each system by category, such as a length of the source."""
    lines = [
        [name, *(mean_cell(found.get(label)) for label in labels)] for name, found in means.items()
    ]
    return Table(["system", *labels], lines, numeric=1)


def training(runs: Runs) -> Table:
    """Return what was trained, for how long, and its last validation loss."""
    header = ["system", "architecture", "seed", "parameters", "updates", "time", "memory"]
    lines = []
    for name, run in runs.items():
        curve, configured = run.curve, run.settings.updates
        lines.append(
            [
                name,
                code(str(run.settings.arch)),
                run.seed,
                f"{run.parameters:,}",
                f"{curve.updates:,}" + (f" of {configured:,}" if configured else ""),
                NONE if curve.training_seconds is None else clock(curve.training_seconds),
                NONE if curve.peak_memory is None else f"{curve.peak_memory:.2f}",
                f"{curve.valid[max(curve.valid)]:.3f}" if curve.valid else NONE,
            ]
        )
    return Table([*header, "valid loss"], lines, numeric=2)


def versions(runs: Sequence[FinishedRun]) -> Table:
    """Return the versions that the runs were evaluated and trained with."""
    found: Dict[str, Dict[str, None]] = {}
    for run in runs:
        evaluated = {} if run.settings.classifies else next(iter(run.scores.values())).versions
        for package, version in {**evaluated, **run.training.versions}.items():
            if version:
                found.setdefault(package, {})[version] = None
    lines = [[package, ", ".join(each)] for package, each in sorted(found.items())]
    return Table(["package", "version"], lines)


def scores_csv(runs: Sequence[FinishedRun]) -> str:
    """Return every number of the runs as CSV, a line for each run, test set and metric.

    A row of a sweep has its value. Parameters and training speed are of no test set.
    """
    rows: List[List[object]] = []
    header = ["run", "row", "value", "seed", "test_set", "metric", "score", "delta", "p_value"]
    for name, run in zip(distinct_names(runs), runs):
        value = "" if run.config.sweep is None else run.config.sweep.label
        rows += [[name, run.row, value, run.seed, *numbers] for numbers in _numbers(run)]
    return csv_text([header, *rows])


def _numbers(run: FinishedRun) -> Iterator[List[object]]:
    """Yield test set, metric, score, difference to the baseline and p-value."""
    if run.settings.classifies:
        task, measures = run.result.probing_task or run.result.task, run.measures
        yield [task, "accuracy", measures.accuracy, None, None]
        yield [task, "macro_f1", measures.macro_f1, None, None]
        for bucket, part in measures.by_bucket.items():
            yield [task, f"accuracy_{bucket}", part.accuracy, None, None]
        return
    yield ["", "parameters", run.parameters, None, None]
    yield ["", "tokens_per_second", run.curve.tokens_per_second, None, None]
    for test_set in run.scores:
        for metric, found in run.output(test_set).scores.items():
            yield [test_set, metric, found.score, found.delta, found.p_value]
