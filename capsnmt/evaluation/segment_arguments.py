"""The flags of ``capsnmt-evaluate`` about metrics that score every segment, such as COMET."""

from __future__ import annotations

import argparse
from typing import Dict, List, Sequence

from capsnmt.cli import ConfigurationError, shown
from capsnmt.evaluation.metrics import is_reserved
from capsnmt.evaluation.settings import SegmentFiles

UNNAMED = "segment score"  # a metric without a name


def add_segment_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--segment-scores``."""
    parser.add_argument(
        "--segment-scores",
        nargs="+",
        action="append",
        default=[],
        metavar=("METRIC", "SYSTEM=FILE"),
        help="scores of every segment that COMET, MetricX or another program computed: one number "
        "a line, comet-score's .json, or MetricX's .jsonl; METRIC is a name for the tables, "
        "SYSTEM=FILE,FILE,... is for several seeds",
    )


def parse_segment_files(given: Sequence[Sequence[str]]) -> List[SegmentFiles]:
    """Return the files of each metric; a repeated flag adds systems to its metric.

    Raises:
        ConfigurationError: a metric has no file, a word is no ``SYSTEM=FILE``, or a name is taken.
    """
    metrics: Dict[str, Dict[str, str]] = {}
    for words in given:
        named = "=" not in words[0]
        metric, pairs = (words[0], words[1:]) if named else (UNNAMED, words)
        flag = f"--segment-scores {metric}"
        _check_metric(metric, flag)
        if not pairs:
            raise ConfigurationError(f"{flag}: has no file: give {metric} SYSTEM=FILE")
        files = metrics.setdefault(metric, {})
        for pair in pairs:
            system, separator, path = pair.partition("=")
            if not separator or not path:
                raise ConfigurationError(f"{flag}: {shown(pair)}: give SYSTEM=FILE")
            if system in files:
                raise ConfigurationError(
                    f"{flag}: {system} is given twice: give {system}=FILE,FILE for several seeds"
                )
            files[system] = path
    return [SegmentFiles(metric, files) for metric, files in metrics.items()]


def _check_metric(name: str, flag: str) -> None:
    """Raise unless a metric of segments may have this name.

    Raises:
        ConfigurationError: it is that of another metric, or cannot be printed.
    """
    if is_reserved(name) or not name.strip() or not name.isprintable():
        raise ConfigurationError(f"{flag}: {shown(name)} cannot name the metric: give another")
