"""Sweeps: a row is launched with several values of one flag, each an ordinary row of its own."""

from __future__ import annotations

import copy
import math
from dataclasses import Field, fields
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from capsnmt.cli import ConfigurationError, shown
from capsnmt.files import check_file_name
from capsnmt.launch.config import Experiment
from capsnmt.launch.options import Sweep
from capsnmt.launch.run import Run
from capsnmt.launch.stage import python
from capsnmt.runs.records import SENTENCE_TASKS, SweepPoint, SweepValue

# The launcher sets the precision; the others are no setting of a mechanism.
EXCLUDED = ("autocast", "compile", "init_from")


def swept(experiment: Experiment, sweep: Sweep) -> List[Experiment]:
    """Return the rows of a sweep: the experiment with each value of the flag.

    Args:
        experiment: the row with the values of its configuration.
        sweep: the flag and its values.

    Raises:
        ConfigurationError: the flag is not one of ours, a value is not of its type, two values are
            equal, ``--set`` gives the flag as well, or the row is a sentence classifier.
    """
    origin, key = sweep.origin, f"train.{sweep.flag}"
    if experiment["train.task"] in SENTENCE_TASKS:
        raise ConfigurationError(
            f"{origin} {sweep.flag}: {experiment.row} is a sentence classifier, and a sweep shows "
            f"BLEU: give a row of translation"
        )
    if experiment[key] is not None and experiment.where(key) == "--set":
        raise ConfigurationError(f"--set {key}: {origin} sets it as well: drop one of them")
    values = parse_values(sweep)
    rows = []
    for value in values:
        point = SweepPoint(experiment.row, sweep.flag, value)
        row = copy.deepcopy(experiment)
        row.row, row.point = point.name, point
        row.put(key, value, origin)
        rows.append(row)
    return rows


def parse_values(sweep: Sweep) -> List[SweepValue]:
    """Return the values of a sweep with the type of their flag.

    Raises:
        ConfigurationError: as :func:`swept`.
    """
    options = sweepable()
    if sweep.flag not in options:
        raise ConfigurationError(
            f"{sweep.origin} {shown(sweep.flag)}: is not a flag of a mechanism: choose from "
            f"{', '.join(options)}"
        )
    option = options[sweep.flag]
    kind, convert = TYPES[type(option.default)]
    values: List[SweepValue] = []
    for text in sweep.values:
        where = f"{sweep.origin} {sweep.flag}={shown(text)[1:-1]}"
        try:
            value = convert(text)
        except (KeyError, ValueError, OverflowError):
            raise ConfigurationError(f"{where}: give {kind}") from None
        meaning = option.metadata["help"].partition("0 means ")[2]
        if meaning and value == 0:
            raise ConfigurationError(
                f"{where}: 0 means {meaning}, and has no place between the other values: give the "
                f"number itself"
            )
        if value in values:
            raise ConfigurationError(f"{where}: is given twice")
        check_file_name(f"{sweep.flag}-{text}", where)
        values.append(value)
    return values


def sweepable() -> Dict[str, Field[Any]]:
    """Return the flags that a sweep takes: those of our mechanisms and of our criterion."""
    from capsnmt.criterions import label_smoothed_cross_entropy_with_disagreement as disagreement
    from capsnmt.models.config import MECHANISMS

    criterion = disagreement.LabelSmoothedCrossEntropyWithDisagreementCriterionConfig
    own = [each for each in fields(criterion) if each.name.startswith("disagreement")]
    found = [*(each for group in MECHANISMS for each in fields(group)), *own]
    return {
        each.name.replace("_", "-"): each
        for each in found
        if not each.name.startswith("_") and each.name not in EXCLUDED
    }


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


# The type of a flag's default -> its description, and how a text becomes a value.
TYPES: Dict[type, Tuple[str, Callable[[str], SweepValue]]] = {
    bool: ("true or false", _truth),
    int: ("a whole number", int),
    float: ("a number", _number),
    str: ("a text", str),
}


def check_settings(run: Run) -> None:
    """Check the settings of a run; an error in a row of a sweep names the row.

    Raises:
        ConfigurationError: a flag is wrong, or has no effect on the row's mechanism.
    """
    try:
        run.check_settings()
    except ConfigurationError as error:
        point = run.experiment.point
        if point is None:
            raise
        raise ConfigurationError(
            f"{run.experiment.where(f'train.{point.flag}')}: {point.name}: {error}"
        ) from None


def report_command(runs: Sequence[Run], sweep: Optional[Sweep]) -> Tuple[str, ...]:
    """Return the command that draws BLEU over the values of a sweep; empty without a sweep.

    Args:
        runs: all runs of the launch.
        sweep: its sweep; a single point is not drawn.
    """
    if sweep is None or len(sweep.values) == 1:
        return ()
    baselines = [run.of(run.baseline).row for run in runs if run.baseline is not None]
    rows = dict.fromkeys(map(str, [*baselines, *(run.folder.row for run in runs)]))
    output = runs[0].output / f"sweep-{sweep.flag}"
    return (*python("capsnmt.report"), *rows, "--output", str(output))
