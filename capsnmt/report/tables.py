"""The tables of a report, and its numbers as text."""

from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from capsnmt.evaluation.scores import METRICS, Comparison, Spread, digits
from capsnmt.pages.page import Table, code, csv_text
from capsnmt.runs.finished import FinishedRun, distinct_names
from capsnmt.runs.learning_curve import clock
from capsnmt.runs.trained_rows import TrainedRow, row_differences

NONE, MINUS = "–", "−"
Means = Mapping[str, Mapping[str, Spread]]  # system -> category -> its value
Compared = Mapping[str, Comparison]  # by system
Runs = Mapping[str, FinishedRun]  # by the names that a report gives them


def mean_cell(value: Optional[Spread]) -> str:
    """Return mean and deviation; a dash without a value."""
    return NONE if value is None else value.text()


def difference_cell(difference: float) -> str:
    """Return a difference with its sign.

    >>> difference_cell(0.5), difference_cell(-1)
    ('+0.50', '−1.00')
    >>> difference_cell(-0.001)
    '+0.00'
    """
    return f"{round(difference, 2) + 0.0:+.2f}".replace("-", MINUS)


def p_cell(p_value: Optional[float]) -> str:
    """Return a p-value; a dash if nothing was tested.

    >>> p_cell(0.0304), p_cell(0.0001), p_cell(None)
    ('0.030', '< 0.001', '–')
    """
    if p_value is None:
        return NONE
    return "< 0.001" if p_value < 0.0005 else f"{p_value:.3f}"


def results(
    rows: Sequence[TrainedRow], test_sets: Sequence[str], compared: Mapping[str, Compared]
) -> Table:
    """Return the table of the papers: parameters, training speed, BLEU and its difference.

    ``compared`` are the comparisons in BLEU with the first row, by test set and row.
    """
    baseline = rows[0]
    every = [run.output(test_set) for row in rows for run in row.runs for test_set in test_sets]
    scored_by_chrf = all("chrf" in each.scores for each in every)
    header = ["system", "parameters", "training"]
    for test_set in test_sets:
        header += [f"{test_set} BLEU", "Δ", *(["95% of Δ"] if compared else []), "chrF2"]
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
            found = compared.get(test_set, {}).get(row.name)
            difference = NONE
            if row is not baseline:
                difference = difference_cell(ours.mean - theirs.mean)
                difference += "" if found is None else found.mark
            lines[-1] += [mean_cell(ours), difference]
            if compared:
                lines[-1].append(interval_cell(None if found is None else found.interval))
            lines[-1].append(mean_cell(row.score(test_set, "chrf") if scored_by_chrf else None))
    return Table(header, lines, numeric=1)


def interval_cell(interval: Optional[Tuple[float, float]]) -> str:
    """Return an interval of a difference; a dash without one."""
    return NONE if interval is None else " to ".join(map(difference_cell, interval))


def comparisons(found: Mapping[str, Mapping[str, Compared]]) -> Table:
    """Return comparisons with the baseline, which are by metric, test set and system."""
    header = ["test set", "difference", "metric", "seeds", "Δ", "95% of Δ", "p", "p, Holm"]
    header += ["p, seeds alone", "p, sentences alone"]
    lines = []
    for metric, places in found.items():
        for test_set, compared in places.items():
            for each in compared.values():
                p_values = (each.p_value, each.corrected_p_value)
                alone = (each.welch_p_value, each.sentences_p_value)
                lines.append(
                    [
                        test_set,
                        f"{each.system} {MINUS} {each.baseline}",
                        METRICS.get(metric, metric),
                        " and ".join(map(str, dict.fromkeys(each.seeds))),
                        difference_cell(each.delta) + each.mark,
                        interval_cell(each.interval),
                        *map(p_cell, (*p_values, *alone)),
                    ]
                )
    if all(line[-2:] == [NONE, NONE] for line in lines):
        header, lines = header[:-2], [line[:-2] for line in lines]
    return Table(header, lines, numeric=3)


def scores(runs: Runs, test_set: str, metrics: Mapping[str, str]) -> Table:
    """Return all scores of every run on a test set; ``metrics`` maps their keys to names."""
    lines = [
        [name, *(f"{run.output(test_set).scores[key].score:.{digits(key)}f}" for key in metrics)]
        for name, run in runs.items()
    ]
    return Table(["system", *metrics.values()], lines, numeric=1)


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


def settings(rows: Sequence[TrainedRow]) -> Table:
    """Return the settings, by a run of each, precisions and versions that differ from the first."""
    first, *others = rows
    lines = []
    for row in others:
        found = row_differences(first.runs[0].config, row.runs[0].config)
        for what, known in first.made_with.items():
            before, after = (" and ".join(each) for each in (known, row.made_with[what]))
            found += [(what, before, after)] if before != after else []
        changes = [
            f"{key} {NONE if was is None else was} → {NONE if now is None else now}"
            for key, was, now in found
        ]
        lines.append([row.name, "; ".join(changes) or NONE])
    return Table(["system", f"settings other than those of {first.name}"], lines)


def versions(runs: Sequence[FinishedRun]) -> Table:
    """Return the versions that the runs were evaluated and trained with."""
    found: Dict[str, Dict[str, None]] = {}
    for run in runs:
        scored = () if run.settings.classifies else run.scores.values()
        for part in (*scored, *run.training.parts):
            for package, version in part.versions.items():
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
