"""Which runs a folder stands for: a run itself, all seeds of a row, or all rows of an output."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from capsnmt.errors import ConfigurationError
from capsnmt.files import read_json

CONFIG, SCORES = "config.json", "scores.json"


def find_runs(folders: Sequence[Path]) -> Tuple[List[Path], List[Path]]:
    """The runs to report, and those that were found on the way but are not finished.

    A folder that is itself a run is reported as it is named, finished or not: then the report fails
    and says so. Rows that were found stand in this order: those that other rows name as their
    baseline, then the others by name.

    Args:
        folders: ``OUTPUT/ROW/seed-S``, ``OUTPUT/ROW`` or ``OUTPUT``.

    Raises:
        ConfigurationError: there is no such folder, or no run below it, or none is finished.
    """
    runs: List[Path] = []
    unfinished: List[Path] = []
    for folder in folders:
        found = _below(folder)
        if found is None:
            runs.append(folder)
            continue
        finished = [run for run in found if (run / SCORES).is_file()]
        if not finished:
            raise ConfigurationError(
                f"{folder}: none of its {len(found)} run(s) is finished, {SCORES} is missing: run "
                "the launcher's command again, which goes on to the end"
            )
        baselines = {read_json(run / CONFIG).get("baseline") for run in finished}
        runs += sorted(finished, key=lambda run: (run.parent.name not in baselines, *_order(run)))
        unfinished += [run for run in found if run not in finished]
    return runs, unfinished


def _below(folder: Path) -> Optional[List[Path]]:
    """The runs below a folder; ``None`` where it is a run, or looks like one that has no files."""
    for pattern in (f"seed-*/{CONFIG}", f"*/seed-*/{CONFIG}"):
        found = sorted((path.parent for path in folder.glob(pattern)), key=_order)
        if found and not (folder / CONFIG).exists():
            return found
    return None


def _order(run: Path) -> Tuple[str, int, str]:
    """By row, then by the number of the seed."""
    seed = run.name[len("seed-") :]
    return run.parent.name, int(seed) if seed.isdigit() else 0, run.name
