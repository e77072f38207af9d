"""Reading the arguments of ``capsnmt-analyse``: named checkpoints and runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import List, Optional, Sequence

from capsnmt.analysis.analyse import Subject
from capsnmt.analysis.registry import ANALYSES
from capsnmt.cli import ConfigurationError, comma_list, shown
from capsnmt.corpora.prepared import PreparedData
from capsnmt.files import check_file_name
from capsnmt.runs.finished import FinishedRun, find_runs


def chosen_analyses(names: Optional[str]) -> Optional[List[str]]:
    """Return the names in ``--only``; None for all.

    Raises:
        ConfigurationError: a name is not an analysis, or is given twice.
    """
    if names is None:
        return None
    try:
        return comma_list(tuple(ANALYSES))(names)
    except argparse.ArgumentTypeError as error:
        raise ConfigurationError(f"--only {error}") from None


def subjects(arguments: Sequence[str], data: Optional[Path]) -> List[Subject]:
    """Return the systems that the arguments name.

    Args:
        arguments: ``NAME=CHECKPOINT``, or folders of finished runs.
        data: ``--data``; without it, a run is analysed on the data of its training.

    Raises:
        ConfigurationError: an argument is neither, a name is not one of a file or is given twice,
            or a checkpoint has no data.
    """
    found: List[Subject] = []
    folders = [
        each
        for each in arguments
        if Path(each).is_dir() or not (Path(each).exists() or "=" in each)
    ]
    runs = {each: find_runs([Path(each)]).finished for each in folders}
    rows = [run.row for several in runs.values() for run in several]
    for argument in arguments:
        name, equals, checkpoint = argument.partition("=")
        if equals and not Path(argument).exists():
            if data is None:
                raise ConfigurationError(
                    f"--data is missing: {shown(argument)} is a checkpoint: give the folder of its "
                    "binarised data"
                )
            found.append(Subject(name, Path(checkpoint), data))
        elif argument in runs:
            found += [_subject(run, rows, data) for run in runs[argument]]
        else:
            raise ConfigurationError(
                f"{shown(argument)}: give NAME=CHECKPOINT, or the folder of a finished run"
            )
    for subject in found:
        check_file_name(subject.name, "name of a system")
        if [other.name for other in found].count(subject.name) > 1:
            raise ConfigurationError(f"{subject.name}: two systems have this name: rename one")
    return found


def _subject(run: FinishedRun, rows: Sequence[str], data: Optional[Path]) -> Subject:
    """Return a finished translation run, named after its row, and its seed if a row has several.

    Args:
        run: the run.
        rows: the rows of all runs.
        data: ``--data``.
    """
    if run.config.classifies:
        raise ConfigurationError(f"{run.folder}: it classifies sentences: give runs that translate")
    name = f"{run.row}-seed-{run.seed}" if rows.count(run.row) > 1 else run.row
    data = data or PreparedData(run.data).binarised
    return Subject(name.replace("/", "-"), run.model, data)
