"""Scores of every segment that another program computed, such as COMET or MetricX.

A file has one number a line, in the order of the test set. ``.json`` is what ``comet-score
--to_json`` writes, and ``.jsonl`` the output file of MetricX.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from capsnmt import records
from capsnmt.cli import ConfigurationError, shown
from capsnmt.evaluation.outputs import Output, SystemOutputs, split_paths
from capsnmt.evaluation.text_files import read_lines

GIVEN = "scores:given"  # in the signature of scores that were not computed here
DECIMALS = 9
COMET_KEY, METRICX_KEY = "COMET", "prediction"


@dataclass(frozen=True)
class SegmentScores:
    """The scores of every segment of all outputs by one metric.

    Attributes:
        metric: name of the metric.
        signature: what a score depends on, as ``key:value|key:value``.
        values: label of each output -> score of each segment.
    """

    metric: str
    signature: str
    values: Mapping[str, Sequence[float]]


class SegmentMean:
    """The mean over segments, with the methods that sacreBLEU's paired tests call.

    sacreBLEU sums the statistics of segments. Here these are the score and the number 1. **D**: the
    mean is rounded to 9 decimals, so that the same scores added in another order are a tie and not
    a greater difference.

    Args:
        metric: name of the metric.
        signature: its signature without a test.
    """

    def __init__(self, metric: str, signature: str) -> None:
        self.name = metric
        self.signature = signature

    def corpus_score(self, segments: Sequence[float], references: None) -> Mean:
        """Return the mean."""
        return self._aggregate_and_compute(self._extract_corpus_statistics(segments, references))

    def get_signature(self) -> Signature:
        """Return a signature that a test can extend."""
        return Signature(self.signature)

    def _extract_corpus_statistics(
        self, segments: Sequence[float], references: None
    ) -> List[List[float]]:
        return [[score, 1.0] for score in segments]

    def _aggregate_and_compute(self, statistics: Any) -> Mean:
        return self._compute_score_from_stats([sum(column) for column in zip(*statistics)])

    def _compute_score_from_stats(self, statistics: Sequence[float]) -> Mean:
        return Mean(self.name, round(float(statistics[0]) / float(statistics[1]), DECIMALS))


@dataclass(frozen=True)
class Mean:
    """A mean, with the names of sacreBLEU's scores."""

    name: str
    score: float


@dataclass
class Signature:
    """A signature, with the methods of sacreBLEU's."""

    metric: str
    info: Dict[str, Any] = field(default_factory=dict)

    def update(self, key: str, value: Any) -> None:
        """Add what a test depends on."""
        self.info[key] = value

    def format(self, short: bool = False) -> str:
        """Return the test's part, as sacreBLEU orders it, and the metric's."""
        found = [f"{key}:{self.info[key]}" for key in ("bs", "ar", "seed") if key in self.info]
        return "|".join([*found, self.metric])


def read_segment_scores(
    metric: str, files: Mapping[str, str], systems: Sequence[SystemOutputs], segments: int
) -> SegmentScores:
    """Read the scores of all outputs by one metric.

    Args:
        metric: its name.
        files: name of each system -> ``FILE[,FILE...]``, one for each output.
        systems: all systems.
        segments: number of segments of the reference.

    Raises:
        ConfigurationError: a system or an output has no file, a file is not needed, or a file has
            something else than one finite number for each segment.
    """
    flag = f"--segment-scores {metric}"
    names = [system.name for system in systems]
    for name in files:
        if name not in names:
            raise ConfigurationError(
                f"{flag} {name}=...: there is no such system: choose from {', '.join(names)}"
            )
    values: Dict[str, Sequence[float]] = {}
    for system in systems:
        if system.name not in files:
            raise ConfigurationError(
                f"{flag}: has no scores of {system.name}: give {system.name}=FILE too"
            )
        paths = split_paths(files[system.name])
        if len(paths) != len(system.outputs):
            raise ConfigurationError(
                f"{flag}: {system.name} has {len(system.outputs)} outputs, but "
                f"{len(paths)} files of scores: give one for each, in the same order"
            )
        for path, output in zip(paths, system.outputs):
            values[output.label] = check_scores(_read(path, output), path, segments)
    return SegmentScores(metric, f"nsegs:{segments}|aggregate:mean|{GIVEN}", values)


def check_scores(found: Sequence[Any], name: str, segments: int) -> List[float]:
    """Return the scores of one output as numbers.

    Args:
        found: what was read.
        name: where it comes from, for error messages.
        segments: number of segments of the reference.

    Raises:
        ConfigurationError: it is something else than one finite number for each segment.
    """
    for number, value in enumerate(found, 1):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigurationError(
                f"{name}, score {number}: {shown(value)} is not a number: give one number a line, "
                "the .json of comet-score --to_json or the .jsonl of MetricX"
            )
        if not math.isfinite(value):
            raise ConfigurationError(
                f"{name}, score {number}: {value} is not a finite number: score the segment again"
            )
    if len(found) != segments:
        raise ConfigurationError(
            f"{name} has {len(found)} scores, but the test set has {segments} segments: give one "
            "score for each segment"
        )
    return [float(value) for value in found]


def _read(path: str, output: Output) -> List[Any]:
    """Read the scores of one output, whatever they are."""
    suffix = Path(path).suffix
    if suffix == ".json":
        return _comet_scores(path, output)
    parse = _metricx_score if suffix == ".jsonl" else _number
    return [parse(line) for line in read_lines(path)]


def _number(line: str) -> Any:
    """Return a line as a number; a line that is none is returned unchanged."""
    try:
        return line if "_" in line else float(line)  # Python reads 1_0 as 10
    except ValueError:
        return line


def _metricx_score(line: str) -> Any:
    """Return the prediction in a line of MetricX; a line without one is returned unchanged."""
    try:
        return json.loads(line)[METRICX_KEY]
    except (ValueError, KeyError, TypeError, RecursionError):
        return line


def _comet_scores(path: str, output: Output) -> List[Any]:
    """Return the scores in a file of comet-score, which holds a list for each translation file.

    Raises:
        ConfigurationError: the file is something else, or has several lists, and none of the file
            of this output.
    """
    lists = records.read(Path(path), dict)
    found = next(iter(lists.values())) if len(lists) == 1 else lists.get(output.path)
    if found is None:
        raise ConfigurationError(
            f"{path} has the scores of {', '.join(lists) or 'nothing'}, and none of {output.path}: "
            "run comet-score --to_json for each output separately"
        )
    try:
        return [segment[COMET_KEY] for segment in found]
    except (KeyError, TypeError):
        raise ConfigurationError(
            f"{path}: not a file of comet-score --to_json: a segment lacks {COMET_KEY!r}"
        ) from None
