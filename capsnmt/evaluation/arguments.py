"""The command line of ``capsnmt-evaluate``; it does not import the libraries that score."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence

from capsnmt.arguments import LARGEST_SEED, OneLineParser, at_least, positive
from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.settings import (
    DETOKENIZE,
    REMOVE_BPE,
    Bootstrap,
    EvaluationSettings,
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
        help="PATH or NAME=PATH; NAME=PATH,PATH,... for the outputs of several seeds; "
        "- is the standard input",
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
    parser.add_argument(
        "--resamples",
        type=positive,
        metavar="N",
        help=f"number of bootstrap resamples (default {Bootstrap.resamples})",
    )
    parser.add_argument(
        "--seed",
        type=at_least(1, LARGEST_SEED),
        metavar="S",
        help=f"seed of the bootstrap (default {Bootstrap.seed})",
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
    if args.baseline is None and args.compare_mt is None:
        for flag, value in (("--resamples", args.resamples), ("--seed", args.seed)):
            if value is not None:
                raise ConfigurationError(f"{flag} has no effect without --baseline SYSTEM: drop it")
    if args.reference is None and args.input == "plain":
        raise ConfigurationError("--input plain has no T- lines: give --reference FILE")
    settings = EvaluationSettings(
        text=_text_settings(args),
        reference=args.reference,
        tokenized_reference=args.tokenized_reference,
        source=args.source,
        test=args.baseline is not None,
        bootstrap=Bootstrap(
            args.resamples or Bootstrap.resamples,
            args.seed or Bootstrap.seed,
        ),
        compare_mt=args.compare_mt,
    )
    return Arguments(args.systems, args.baseline, settings, args.json)


def _text_settings(args: argparse.Namespace) -> TextSettings:
    """Return the text settings, with the defaults of the kind of input."""
    generate = args.input == "generate"
    remove_bpe = args.remove_bpe or ("subword_nmt" if generate else "none")
    moses = generate and remove_bpe != "sentencepiece"
    detokenize = args.detokenize or ("moses" if moses else "none")
    return TextSettings(args.input, remove_bpe, detokenize, args.target_lang)
