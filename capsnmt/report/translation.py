"""The report's part on translation: the papers' table, curves, lengths, samples, records."""

from __future__ import annotations

import functools
from typing import Dict, List, Sequence

from capsnmt.files import read_json
from capsnmt.report import details, records, results
from capsnmt.report.blocks import Block
from capsnmt.report.details import CURVES, LENGTHS
from capsnmt.report.figures import bleu_by_length, learning_curves
from capsnmt.report.machine import describe_machine
from capsnmt.report.page import Part
from capsnmt.report.test_set import read_test_set
from capsnmt.runs.finished import FinishedRun, distinct_names
from capsnmt.runs.systems import group


def translation(runs: Sequence[FinishedRun], samples: int = 20) -> Part:
    """All that the page says of these runs.

    Args:
        runs: of the same test sets, the baseline first.
        samples: sample translations of each test set.

    Raises:
        ConfigurationError: a file of a run is missing or damaged.
    """
    systems = group(runs)
    test_sets = [read_test_set(systems, name) for name in runs[0].scores]
    lengths = {test_set.name: test_set.by_length() for test_set in test_sets}
    names, each_run = [system.name for system in systems], distinct_names(runs)
    sections: Dict[str, List[Block]] = {
        "Results": [
            *results.results(systems),
            *results.comparisons(runs, each_run),
        ],
        "Scores": [
            block
            for test_set in test_sets
            for block in results.scores(runs, each_run, test_set.name)
        ],
        "Training": list(details.training(runs, each_run)),
        "Length of the source": [
            block
            for name, found in lengths.items()
            for block in details.lengths(name, names, found)
        ],
    }
    for test_set in test_sets if samples else ():
        sections[f"Sample translations of {test_set.name}"] = list(
            details.translations(test_set, names, samples)
        )
    manifest = read_json(runs[0].data / "manifest.json")
    sections["Data"] = list(records.data(manifest, runs[0].description.languages))
    sections["Commands"] = list(records.commands(runs, each_run))
    sections["Versions and machine"] = list(records.versions(runs, each_run, describe_machine()))
    curves = {system.name: [run.curve for run in system.runs] for system in systems}
    figures = {CURVES: functools.partial(learning_curves, curves)}
    for name, found in lengths.items():
        by_name = dict(zip(names, found.bleu))
        figures[f"{LENGTHS}-{name}"] = functools.partial(bleu_by_length, by_name, found.counts)
    return Part(_title(runs[0]), list(results.summary(runs, each_run)), sections, figures)


def _title(run: FinishedRun) -> str:
    """The data set and the languages of a run."""
    dataset = run.description.dataset or "Experiment"
    return f"{dataset}, {run.description.languages[0]} to {run.description.languages[1]}"
