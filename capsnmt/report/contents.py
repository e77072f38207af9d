"""The parts of a report: translation, sentence classification, analysis."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator, Sequence

from capsnmt.report.analysis_section import analysis
from capsnmt.report.classification import classification
from capsnmt.report.page import Part
from capsnmt.report.translation import translation
from capsnmt.runs.finished import check_comparable, find_runs


def parts(folders: Sequence[Path], samples: int, output: Path) -> Iterator[Part]:
    """Yield the parts about the runs in some folders; unfinished runs are left out.

    Args:
        folders: runs, rows or outputs of the launcher.
        samples: number of sample translations of each test set.
        output: folder of the report; an analysis that lies in it is linked.

    Raises:
        ConfigurationError: a folder has no finished run, or a run is damaged.
    """
    found = find_runs(folders)
    for folder in found.unfinished:
        print(f"warning: {folder} is not finished and is left out", file=sys.stderr)
    translators = [run for run in found.finished if not run.config.classifies]
    classifiers = [run for run in found.finished if run.config.classifies]
    if translators:
        check_comparable(translators)
        yield translation(translators, samples)
    if classifiers:
        yield classification(classifiers)
    yield from analysis(output)
