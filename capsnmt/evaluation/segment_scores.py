"""Scores of every segment that another program computed, such as COMET or MetricX.

A file has one number a line, in the order of the test set. ``.json`` is what ``comet-score
--to_json`` writes, and ``.jsonl`` the output file of MetricX.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Dict, List, Mapping, Sequence

import msgspec

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.outputs import Output, System, read_lines, split_paths


class CometSegment(msgspec.Struct):
    """What is read of a segment in the file of comet-score."""

    score: float = msgspec.field(name="COMET")


class MetricXSegment(msgspec.Struct):
    """What is read of a line in the file of MetricX."""

    score: float = msgspec.field(name="prediction")


def read_segment_scores(
    metric: str, files: Mapping[str, str], systems: Sequence[System], segments: int
) -> Dict[Output, List[float]]:
    """Read the scores of all outputs by one metric.

    Args:
        metric: its name.
        files: name of each system -> ``FILE[,FILE...]``, one for each output.
        systems: all systems.
        segments: number of segments of the test set.

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
    scores: Dict[Output, List[float]] = {}
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
            scores[output] = found = _read(path, output)
            if len(found) != segments:
                raise ConfigurationError(
                    f"{path} has {len(found)} scores, but the test set has {segments} segments: "
                    "give one score for each segment"
                )
            for number, score in enumerate(found, 1):
                if not math.isfinite(score):
                    raise ConfigurationError(
                        f"{path}, score {number}: {score} is not a finite number: score the "
                        "segment again"
                    )
    return scores


def _read(path: str, output: Output) -> List[float]:
    """Read the scores of one output."""
    suffix = Path(path).suffix
    if suffix == ".json":
        return _comet_scores(path, output)
    scores = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            scores.append(
                msgspec.json.decode(line, type=MetricXSegment).score
                if suffix == ".jsonl"
                else float(line)
            )
        except (ValueError, msgspec.MsgspecError) as error:
            raise ConfigurationError(
                f"{path}, score {number}: {error}: give one number a line, the .json of "
                "comet-score --to_json or the .jsonl of MetricX"
            ) from None
    return scores


def _comet_scores(path: str, output: Output) -> List[float]:
    """Read the file of comet-score, which holds a list for each file of translations.

    Raises:
        ConfigurationError: the file is something else, or has several lists, and none of the file
            of this output.
    """
    try:
        content = "\n".join(read_lines(path))
        lists = msgspec.json.decode(content, type=Dict[str, List[CometSegment]])
    except msgspec.MsgspecError as error:
        raise ConfigurationError(f"{path}: not a file of comet-score --to_json: {error}") from None
    found = next(iter(lists.values())) if len(lists) == 1 else lists.get(output.path)
    if found is None:
        raise ConfigurationError(
            f"{path} has the scores of {', '.join(lists) or 'nothing'}, and none of {output.path}: "
            "run comet-score --to_json for each output separately"
        )
    return [segment.score for segment in found]
