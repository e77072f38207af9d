"""Scores of every segment that another program computed, such as COMET or MetricX.

A file has one number per line, in the order of the test set, or is the ``.json`` that ``comet-score
--to_json`` writes.
"""

import math
import unicodedata
from pathlib import Path
from typing import Dict, List, Mapping, Optional

import msgspec

from capsnmt.cli import ConfigurationError, say
from capsnmt.evaluation.outputs import Systems, read_lines, split_paths, warn_of_copies

FORMATS = "one number per line, or the .json of comet-score --to_json"


class CometSegment(msgspec.Struct):
    """What is read of a segment in the file of comet-score."""

    score: float = msgspec.field(name="COMET")
    translation: Optional[str] = msgspec.field(name="mt", default=None)


def read_segment_scores(
    metric: str, files: Mapping[str, str], systems: Systems, segments: int
) -> List[List[float]]:
    """Read the scores of all outputs by one metric.

    ``files`` has ``FILE[,FILE...]`` of each system, one for each output.
    """
    flag = f"--segment-scores {metric}"
    if {*files} != {*systems}:
        raise ConfigurationError(
            f"{flag} is for {', '.join(files)}; give a SYSTEM=FILE for each of {', '.join(systems)}"
        )
    scores: List[List[float]] = []
    for name, outputs in systems.items():
        paths = split_paths(files[name])
        if len(paths) != len(outputs):
            raise ConfigurationError(
                f"{flag} {name}={files[name]} has {len(paths)} files, but {name} has "
                f"{len(outputs)} outputs; give a file for each, in the same order"
            )
        for path, output in zip(paths, outputs):
            read = _read(path)
            scores.append(found := [each.score for each in read])
            finite = sum(map(math.isfinite, found))
            if not len(found) == finite == segments:
                raise ConfigurationError(
                    f"{path} has {len(found)} scores, of which {finite} are numbers, but the test "
                    f"set has {segments} segments; give a number for each"
                )
            given = [(each.translation, text) for each, text in zip(read, output.hypotheses)]
            others = sum(one is not None and _words(one) != _words(text) for one, text in given)
            if others:
                say(
                    f"warning: {path}: {others:,} of {segments:,} scores are of another "
                    f"translation than that of {output.label}; score those that are given"
                )
    labels = (output.label for outputs in systems.values() for output in outputs)
    warn_of_copies(zip(labels, scores), f"scores of {metric}")
    return scores


def _words(text: str) -> List[str]:
    return unicodedata.normalize("NFC", text).split()


def _read(path: str) -> List[CometSegment]:
    lines = read_lines(path)
    try:
        if Path(path).suffix == ".json":  # a list for each file of translations
            lists = msgspec.json.decode("\n".join(lines), type=Dict[str, List[CometSegment]])
            if len(lists) != 1:
                raise ValueError(f"scores of {len(lists)} outputs in one file")
            return [segment for found in lists.values() for segment in found]
        return [CometSegment(float(line)) for line in lines]
    except (ValueError, msgspec.MsgspecError) as error:
        raise ConfigurationError(f"{path}: {error}; give {FORMATS}, for each output") from None
