"""Find runs: a folder may be a run, a row with its seeds, or an output with all rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.runs.folder import RunFolder


@dataclass(frozen=True)
class FoundRuns:
    """The finished runs in the order of a report, and the others."""

    finished: List[RunFolder]
    unfinished: List[RunFolder]


def find_runs(folders: Sequence[Path]) -> FoundRuns:
    """Find the runs below some folders.

    A folder that is itself a run is listed as finished; if it is not, reading it reports what is
    missing. Of the rows below a folder, the baselines of other rows come first, then the others by
    name.

    Args:
        folders: ``OUTPUT/ROW/seed-S``, ``OUTPUT/ROW``, ``OUTPUT``, or a folder of several outputs.

    Raises:
        ConfigurationError: there is no such folder, no run below it, or none is finished.
    """
    runs: List[RunFolder] = []
    unfinished: List[RunFolder] = []
    for folder in folders:
        if not folder.is_dir():
            raise ConfigurationError(
                f"{folder}: there is no such folder: give OUTPUT, OUTPUT/ROW or OUTPUT/ROW/seed-S"
            )
        found = _below(folder)
        if found is None:
            runs.append(RunFolder(folder))
            continue
        finished = [run for run in found if run.is_finished]
        if not finished:
            raise ConfigurationError(
                f"{folder}: none of its {len(found)} run(s) is finished: run the launcher's "
                "command again to resume them"
            )
        baselines = {run.read_description().baseline for run in finished}
        runs += sorted(finished, key=lambda run: (run.row.name not in baselines, _order(run)))
        unfinished += [run for run in found if run not in finished]
    return FoundRuns(runs, unfinished)


def _below(folder: Path) -> Optional[List[RunFolder]]:
    """Return the runs below a folder; ``None`` if it is itself a run, or has none."""
    if RunFolder(folder).exists:
        return None
    name = RunFolder(folder).description.name
    found = [RunFolder(path.parent) for path in folder.glob(f"**/seed-*/{name}")]
    return sorted(found, key=_order) or None


def _order(run: RunFolder) -> Tuple[str, int, str]:
    """Return the key that sorts runs by the folder of the row, then by seed."""
    seed = run.path.name[len("seed-") :]
    return str(run.row), int(seed) if seed.isdigit() else 0, run.path.name
