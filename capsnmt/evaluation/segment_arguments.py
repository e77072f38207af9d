"""The flags of ``capsnmt-evaluate`` about metrics that score every segment, such as COMET."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from capsnmt.cli import ConfigurationError, positive, shown
from capsnmt.evaluation.metrics import is_reserved
from capsnmt.evaluation.outputs import split_name
from capsnmt.evaluation.settings import Comet, SegmentFiles

UNNAMED = "segment score"  # a metric without a name
COMET = "COMET"  # the metric of a model without a name


def add_segment_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--segment-scores`` and the flags of ``--comet-model``."""
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
    parser.add_argument(
        "--comet-model",
        metavar="FILE",
        help="also score with this COMET checkpoint, without the network (needs unbabel-comet); "
        "METRIC=FILE names it in the tables",
    )
    parser.add_argument("--comet-source", metavar="FILE", help="raw source, for --comet-model")
    parser.add_argument("--comet-gpu", action="store_true", help="run --comet-model on a GPU")
    parser.add_argument(
        "--comet-batch-size",
        type=positive,
        metavar="N",
        help=f"segments that --comet-model scores at a time (default {Comet.batch_size})",
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


def parse_comet(args: argparse.Namespace, others: Sequence[str]) -> Optional[Comet]:
    """Return the COMET model.

    Args:
        args: the parsed command line.
        others: names of the other metrics of segments.

    Raises:
        ConfigurationError: the source is missing, a flag has no effect, or the name is taken.
    """
    if args.comet_model is None:
        for flag, value in (
            ("--comet-source", args.comet_source),
            ("--comet-gpu", args.comet_gpu or None),
            ("--comet-batch-size", args.comet_batch_size),
        ):
            if value is not None:
                raise ConfigurationError(f"{flag} has no effect without --comet-model: drop it")
        return None
    metric, path = split_name(args.comet_model)
    metric = COMET if metric == path else metric
    flag = f"--comet-model {args.comet_model}"
    _check_metric(metric, flag)
    if metric in others:
        raise ConfigurationError(f"{flag}: --segment-scores has a metric {metric}: give NAME=FILE")
    if args.comet_source is None:
        raise ConfigurationError(f"{flag}: reads the source too: give --comet-source FILE")
    batch_size = args.comet_batch_size or Comet.batch_size
    return Comet(metric, Path(path), args.comet_source, args.comet_gpu, batch_size)


def _check_metric(name: str, flag: str) -> None:
    """Raise unless a metric of segments may have this name.

    Raises:
        ConfigurationError: it is that of another metric, or cannot be printed.
    """
    if is_reserved(name) or not name.strip() or not name.isprintable():
        raise ConfigurationError(f"{flag}: {shown(name)} cannot name the metric: give another")
