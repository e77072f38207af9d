"""Systems: the runs of one row with different seeds, as one line of the papers' tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.scores import SourceLengths
from capsnmt.evaluation.seeds import Spread, mean_by_length, spread
from capsnmt.runs.comparison import differences
from capsnmt.runs.translation import FinishedTranslation, distinct_names

# The marks of Ampomah et al. 2020: p below 0.05, below 0.01.
LEVELS = {"‡": 0.01, "†": 0.05}


@dataclass(frozen=True)
class System:
    """A row of a table: all its runs, in the order of their seeds."""

    name: str
    runs: Sequence[FinishedTranslation]

    @property
    def parameters(self) -> int:
        """The number of learned parameters."""
        return self.runs[0].parameters

    def score(self, test_set: str, metric: str = "bleu") -> Spread:
        """Mean and standard deviation (n - 1) over the seeds."""
        return spread([run.output(test_set).score(metric).score for run in self.runs])

    def by_length(self, test_set: str) -> List[Optional[float]]:
        """BLEU of each bucket of source lengths, averaged over the seeds."""
        rows = [run.output(test_set).by_length for run in self.runs]
        return mean_by_length([row for row in rows if row is not None])

    @property
    def tokens_per_second(self) -> Optional[float]:
        """Target tokens per second of training, averaged over the seeds."""
        found = [run.curve.tokens_per_second for run in self.runs]
        measured = [speed for speed in found if speed is not None]
        return spread(measured).mean if len(measured) == len(found) else None

    def speed_against(self, baseline: System) -> Optional[float]:
        """Training speed relative to the baseline's.

        **D**: ``None`` unless all runs had the same device and number of threads: any other ratio
        compares machines, not models.
        """
        descriptions = [run.description for run in [*self.runs, *baseline.runs]]
        machines = {(each.device, each.device_name, each.threads) for each in descriptions}
        own, other = self.tokens_per_second, baseline.tokens_per_second
        if len(machines) > 1 or own is None or not other:
            return None
        return own / other

    def p_values(self, test_set: str, baseline: System) -> Optional[List[float]]:
        """The p-value (BLEU) of each seed against a baseline; ``None`` unless all were tested."""
        found = [p_of(run, test_set) for run in self.runs]
        tests = [run.scores[test_set].test for run in self.runs]
        against = {None if test is None else test.baseline for test in tests}
        measured = [value for value in found if value is not None]
        return (
            measured if len(measured) == len(found) and against == {baseline.runs[0].row} else None
        )

    def mark(self, test_set: str, baseline: System) -> str:
        """The mark of a significant difference from the baseline; empty if there is none.

        **D**: over several seeds the largest p-value decides: the difference is marked only if it
        is significant for each of them.
        """
        p_values = self.p_values(test_set, baseline) or [1.0]
        return next((mark for mark, level in LEVELS.items() if max(p_values) < level), "")


def source_lengths(systems: Sequence[System], test_set: str) -> Optional[SourceLengths]:
    """Return the buckets of source lengths that all systems were scored with.

    **D**: a length is that of the source as a system reads it. ``None`` for systems with different
    subwords: their buckets hold different sentences.
    """
    first, *others = [run.scores[test_set].lengths for system in systems for run in system.runs]
    return first if all(lengths == first for lengths in others) else None


def p_of(run: FinishedTranslation, test_set: str, metric: str = "bleu") -> Optional[float]:
    """Return the p-value of a run against its baseline; ``None`` if it was not tested."""
    return run.output(test_set).score(metric).p_value


def group(runs: Sequence[FinishedTranslation]) -> List[System]:
    """Group runs into systems, in the order of the first run of each.

    Several runs of a row with the same seed are different experiments and remain separate systems.

    Raises:
        ConfigurationError: runs of one row were trained with different settings, so that a mean
            over their seeds has no meaning.
    """
    rows: Dict[str, List[FinishedTranslation]] = {}
    for run in runs:
        rows.setdefault(run.row, []).append(run)
    names = dict(zip((str(run.folder) for run in runs), distinct_names(runs)))
    systems = []
    for row, members in rows.items():
        if len({run.seed for run in members}) == len(members):
            _check_same_training(members)
            systems.append(System(row, sorted(members, key=lambda run: run.seed)))
        else:
            systems += [System(names[str(run.folder)], [run]) for run in members]
    return systems


def _check_same_training(runs: Sequence[FinishedTranslation]) -> None:
    first = runs[0]
    for run in runs[1:]:
        for key, one, other in differences(first.description, run.description):
            if key != "seed":
                raise ConfigurationError(
                    f"{run.folder}: was trained with {key} {other}, but {first.folder}, another "
                    f"seed of {run.row}, with {one}: report them separately"
                )
