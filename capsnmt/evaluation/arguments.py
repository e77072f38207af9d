"""The command line of ``capsnmt-evaluate``; it does not import the libraries that score."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence

from capsnmt.cli import LARGEST_SEED, ConfigurationError, OneLineParser, at_least
from capsnmt.evaluation.segment_arguments import add_segment_flags, parse_segment_files
from capsnmt.evaluation.settings import (
    BOOTSTRAP,
    DETOKENIZE,
    MOST_SAMPLES,
    RANDOMIZATION,
    REMOVE_BPE,
    SAMPLES,
    SEED,
    CompareMT,
    EvaluationSettings,
    Significance,
    TextSettings,
)
from capsnmt.evaluation.text import language

STDOUT = "-"


@dataclass(frozen=True)
class Arguments:
    """The parsed command line.

    Attributes:
        systems: ``PATH`` or ``NAME=PATH[,PATH...]`` of each system.
        baseline: name or ``NAME=PATH`` of the system to test against.
        settings: everything else about the evaluation.
        json: file for the JSON document, or ``-`` for the standard output.
    """

    systems: Sequence[str]
    baseline: Optional[str]
    settings: EvaluationSettings
    json: Optional[str]


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-evaluate``."""
    parser = OneLineParser(
        prog="capsnmt-evaluate",
        description="Score translations against one reference and test their differences.",
    )
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="SYSTEM",
        help="PATH or NAME=PATH; NAME=PATH,PATH,... for the outputs of several seeds",
    )
    parser.add_argument(
        "--baseline",
        metavar="SYSTEM",
        help="test every system against this one: the name of one of them, or another file",
    )
    parser.add_argument("--reference", metavar="FILE", help="raw reference (default: the T- lines)")
    parser.add_argument(
        "--tokenized-reference",
        metavar="FILE",
        help="reference for tokenised BLEU of the tokens as decoded (default: tokenise both sides "
        "with Moses)",
    )
    parser.add_argument(
        "--source",
        metavar="FILE",
        help="source tokens for BLEU by source length (default: the S- lines)",
    )
    parser.add_argument(
        "--input",
        choices=("generate", "plain"),
        default="generate",
        help="output of fairseq-generate (default), or one sentence per line",
    )
    parser.add_argument(
        "--remove-bpe",
        choices=REMOVE_BPE,
        help="default: subword_nmt for --input generate, none for plain",
    )
    parser.add_argument(
        "--detokenize",
        choices=DETOKENIZE,
        help="default: moses for --input generate (none with sentencepiece), none for plain",
    )
    parser.add_argument(
        "--target-lang",
        type=language,
        metavar="LANG",
        help="target language, for detokenisation and for BLEU's tokeniser (default: from the log "
        "of fairseq-generate)",
    )
    add_segment_flags(parser)
    parser.add_argument(
        "--significance",
        choices=tuple(SAMPLES),
        help=f"the paired test against the baseline (default {BOOTSTRAP})",
    )
    parser.add_argument(
        "--resamples",
        type=at_least(1, MOST_SAMPLES),
        metavar="N",
        help=f"number of bootstrap resamples (default {SAMPLES[BOOTSTRAP]})",
    )
    parser.add_argument(
        "--trials",
        type=at_least(1, MOST_SAMPLES),
        metavar="N",
        help=f"number of trials of approximate randomization (default {SAMPLES[RANDOMIZATION]})",
    )
    parser.add_argument(
        "--seed",
        type=at_least(1, LARGEST_SEED),
        metavar="S",
        help=f"seed of the test (default {SEED})",
    )
    parser.add_argument(
        "--compare-mt",
        type=Path,
        metavar="DIR",
        help="also write compare-mt's report into DIR; its bootstrap resamples half of the "
        "sentences and is a different test",
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help="write JSON to FILE, or print it instead of the table",
    )
    return parser


def parse_arguments(argv: Optional[Sequence[str]] = None) -> Arguments:
    """Parse the command line.

    Raises:
        ConfigurationError: a flag is unknown, has a bad value, or would have no effect.
    """
    args = build_parser().parse_args(argv)
    _check_effect(args)
    if args.reference is None and args.input == "plain":
        raise ConfigurationError("--input plain has no T- lines: give --reference FILE")
    settings = EvaluationSettings(
        text=_text_settings(args),
        reference=args.reference,
        tokenized_reference=args.tokenized_reference,
        source=args.source,
        segment_files=parse_segment_files(args.segment_scores),
        significance=_significance(args),
        compare_mt=_compare_mt(args),
    )
    return Arguments(args.systems, args.baseline, settings, args.json)


def _check_effect(args: argparse.Namespace) -> None:
    """Raise if a flag of the test of significance has no effect."""
    method = args.significance or BOOTSTRAP
    needs_test = {"--significance": args.significance, "--trials": args.trials}
    if args.compare_mt is None:
        needs_test.update({"--resamples": args.resamples, "--seed": args.seed})
    for flag, value in needs_test.items():
        if value is not None and args.baseline is None:
            raise ConfigurationError(f"{flag} has no effect without --baseline SYSTEM: drop it")
    for flag, value, other in (
        ("--trials", args.trials, RANDOMIZATION),
        ("--resamples", needs_test.get("--resamples"), BOOTSTRAP),
    ):
        if value is not None and method != other:
            raise ConfigurationError(
                f"{flag} has no effect with --significance {method}: drop it, or give "
                f"--significance {other}"
            )


def _significance(args: argparse.Namespace) -> Optional[Significance]:
    if args.baseline is None:
        return None
    method = args.significance or BOOTSTRAP
    samples = {BOOTSTRAP: args.resamples, RANDOMIZATION: args.trials}[method]
    return Significance(method, samples or SAMPLES[method], args.seed or SEED)


def _compare_mt(args: argparse.Namespace) -> Optional[CompareMT]:
    if args.compare_mt is None:
        return None
    return CompareMT(args.compare_mt, args.resamples or SAMPLES[BOOTSTRAP], args.seed or SEED)


def _text_settings(args: argparse.Namespace) -> TextSettings:
    """Return the text settings, with the defaults of the kind of input."""
    generate = args.input == "generate"
    remove_bpe = args.remove_bpe or ("subword_nmt" if generate else "none")
    moses = generate and remove_bpe != "sentencepiece"
    detokenize = args.detokenize or ("moses" if moses else "none")
    return TextSettings(args.input, remove_bpe, detokenize, args.target_lang)
