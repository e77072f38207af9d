"""The part of a report about translation."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Sequence

from capsnmt.corpora.prepared import PreparedData
from capsnmt.machine import describe_machine
from capsnmt.report.elements import Element
from capsnmt.report.figures import bleu_by_length, learning_curves
from capsnmt.report.length_section import figure_name, lengths
from capsnmt.report.page import Part
from capsnmt.report.record_sections import commands, data, versions
from capsnmt.report.result_section import caveats, results
from capsnmt.report.sample_section import samples
from capsnmt.report.score_section import scores
from capsnmt.report.sweep_section import sweep_elements, sweep_figures, sweep_table, table_name
from capsnmt.report.training_section import CURVES, training
from capsnmt.runs.finished import FinishedRun, distinct_names
from capsnmt.runs.seeds import group, source_lengths
from capsnmt.runs.sweeps import find_sweeps


def translation(runs: Sequence[FinishedRun], sample_count: int = 20) -> Part:
    """Build the part about translation runs.

    Args:
        runs: runs on the same test sets, the baseline first.
        sample_count: number of sample translations of each test set.

    Raises:
        ConfigurationError: a file of a run is missing or damaged.
    """
    systems = group(runs)
    config, scored = runs[0].config, list(runs[0].scores)
    sweeps = find_sweeps(runs)
    run_names = distinct_names(runs)
    sections: Dict[str, List[Element]] = {
        "Results": list(results(systems)),
        "Sweeps": [element for each in sweeps for element in sweep_elements(each, scored)],
        "Scores": [element for name in scored for element in scores(runs, run_names, name)],
        "Training": list(training(runs, run_names)),
        "Length of the source": [element for name in scored for element in lengths(name, systems)],
    }
    if not sweeps:
        del sections["Sweeps"]
    for name in scored if sample_count else ():
        sections[f"Sample translations of {name}"] = list(samples(systems, name, sample_count))
    manifest = PreparedData(runs[0].data).read_manifest()
    sections["Data"] = list(data(manifest, config.languages))
    sections["Commands"] = list(commands(runs, run_names))
    sections["Versions and machine"] = list(versions(runs, run_names, describe_machine()))
    curves = {system.name: [run.curve for run in system.runs] for system in systems}
    figures: Dict[str, Callable[[], Any]] = {CURVES: functools.partial(learning_curves, curves)}
    for name in scored:
        buckets = source_lengths(systems, name)
        if buckets is not None:
            by_length = {system.name: system.by_length(name) for system in systems}
            segments = buckets[1]
            figures[figure_name(name)] = functools.partial(bleu_by_length, by_length, segments)
    for each in sweeps:
        figures.update(sweep_figures(each, scored))
    tables = {table_name(each): sweep_table(each, scored) for each in sweeps}
    source, target = config.languages
    title = f"{config.dataset or 'Experiment'}, {source} to {target}"
    return Part(title, list(caveats(runs)), sections, figures, tables)
