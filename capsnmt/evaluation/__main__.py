"""``capsnmt-evaluate``: score translations against one reference, and test their differences."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from capsnmt.arguments import positive
from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.reading import read_lines
from capsnmt.evaluation.report import Evaluation, as_json, as_text
from capsnmt.evaluation.scoring import build_metrics, score_system
from capsnmt.evaluation.significance import paired_bootstrap
from capsnmt.evaluation.systems import (
    UNKNOWN_IN_REFERENCE,
    System,
    TextSettings,
    check_count,
    common_references,
    read_systems,
    split_name,
)
from capsnmt.evaluation.text import DETOKENIZE, REMOVE_BPE, moses_limits
from capsnmt.files import read_json, write_json

RESAMPLES, SEED = 1000, 12345
STDOUT = "-"


def build_parser() -> argparse.ArgumentParser:
    """The command line of ``capsnmt-evaluate``."""
    parser = argparse.ArgumentParser(prog="capsnmt-evaluate", description=__doc__)
    parser.add_argument(
        "systems", nargs="+", metavar="SYSTEM", help="PATH or NAME=PATH; - is the standard input"
    )
    parser.add_argument(
        "--baseline",
        metavar="SYSTEM",
        help="test every system against this one: the name of one of them, or another file",
    )
    parser.add_argument(
        "--reference", metavar="FILE", help="the raw reference (default: the T- lines)"
    )
    parser.add_argument(
        "--input",
        choices=("generate", "plain"),
        default="generate",
        help="fairseq-generate's output (default), or a sentence a line",
    )
    parser.add_argument(
        "--remove-bpe",
        choices=REMOVE_BPE,
        help="default: subword_nmt for --input generate, none for plain",
    )
    parser.add_argument(
        "--detokenize",
        choices=DETOKENIZE,
        help="default: moses for --input generate (but none with sentencepiece), none for plain",
    )
    parser.add_argument(
        "--target-lang",
        metavar="LANG",
        help="for the detokeniser and BLEU's tokeniser (default: from fairseq-generate's log)",
    )
    parser.add_argument(
        "--resamples", type=positive, metavar="N", help=f"of the bootstrap (default {RESAMPLES})"
    )
    parser.add_argument(
        "--seed", type=positive, metavar="S", help=f"of the bootstrap (default {SEED})"
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help="write JSON to FILE, or print it in place of the table",
    )
    return parser


def text_settings(args: argparse.Namespace) -> TextSettings:
    """How the files become text, with the defaults of their kind."""
    generate = args.input == "generate"
    remove_bpe = args.remove_bpe or ("subword_nmt" if generate else "none")
    moses = generate and remove_bpe != "sentencepiece"
    detokenize = args.detokenize or ("moses" if moses else "none")
    return TextSettings(args.input, remove_bpe, detokenize, args.target_lang)


def check_arguments(args: argparse.Namespace) -> None:
    """Raise before any work for what cannot end well.

    Raises:
        ConfigurationError: a flag without effect, or JSON that would replace something else.
    """
    if args.baseline is None:
        for flag, value in (("--resamples", args.resamples), ("--seed", args.seed)):
            if value is not None:
                raise ConfigurationError(f"{flag} has no effect without --baseline SYSTEM: drop it")
    if args.reference is None and args.input == "plain":
        raise ConfigurationError("--input plain has no T- lines: give --reference FILE")
    if args.json not in (None, STDOUT) and Path(args.json).exists():
        # "--json SYSTEM" would otherwise replace a system's output by its score
        try:
            ours = "systems" in read_json(Path(args.json))
        except (ConfigurationError, OSError, TypeError):
            ours = False
        if not ours:
            raise ConfigurationError(
                f"--json {args.json} exists and is no report of this command: name another file, "
                "or put a bare --json last"
            )


def baseline_first(systems: Sequence[str], baseline: Optional[str]) -> List[str]:
    """The arguments of all systems, the baseline's first.

    Raises:
        ConfigurationError: there is nothing to test against the baseline.
    """
    if baseline is None:
        return list(systems)
    same = [system for system in systems if baseline in (system, *split_name(system))]
    others = [system for system in systems if system not in same[:1]]
    if not others:
        raise ConfigurationError(f"--baseline {baseline} is the only system: give one to test too")
    return [same[0] if same else baseline, *others]


def reference_of(systems: Sequence[System], args: argparse.Namespace) -> Tuple[str, List[str]]:
    """Where the reference is from, and its segments.

    Raises:
        ConfigurationError: there is none, or its length is not that of every system.
    """
    if args.reference is None:
        name, reference = f"the T- lines of {systems[0].name}", common_references(systems)
        note("the reference is tokenised text put together again, not the raw reference: scores")
        note("are comparable among these systems only (give --reference FILE)")
        unknown = sum(UNKNOWN_IN_REFERENCE in line for line in reference)
        if unknown:
            note(f"{unknown} references hold {UNKNOWN_IN_REFERENCE}: give --reference FILE")
    else:
        name = args.reference
        reference = [line.rstrip() for line in read_lines(args.reference)]
    for system in systems:
        check_count(name, len(reference), system.name, len(system.hypotheses))
    return name, reference


def note(line: str) -> None:
    """Tell the user something beside the result."""
    print(f"capsnmt-evaluate: {line}", file=sys.stderr)


def evaluate(args: argparse.Namespace) -> Evaluation:
    """Read, score and test what the command line names.

    Raises:
        ConfigurationError: one line, for everything a user can get wrong.
    """
    check_arguments(args)
    settings = text_settings(args)
    systems = read_systems(baseline_first(args.systems, args.baseline), settings)
    target_lang = next((system.target_lang for system in systems if system.target_lang), None)
    limits = moses_limits(target_lang) if settings.detokenize == "moses" else None
    if limits:
        note(limits)
    name, reference = reference_of(systems, args)
    metrics = build_metrics(target_lang, reference)
    resamples, seed = args.resamples or RESAMPLES, args.seed or SEED
    if args.baseline is None:
        scores = [score_system(metrics, system.hypotheses) for system in systems]
    else:
        named = [(system.name, system.hypotheses) for system in systems]
        scores = paired_bootstrap(named, metrics, resamples, seed)
        for system in systems[1:]:
            if system.hypotheses == systems[0].hypotheses:
                # sacreBLEU counts no resample as a greater difference than none at all
                note(f"{system.name} is {systems[0].name}, sentence by sentence: no p-value holds")
    return Evaluation(
        reference=name,
        raw_reference=args.reference is not None,
        systems=systems,
        scores=scores,
        target_lang=target_lang,
        baseline=systems[0].name if args.baseline is not None else None,
        resamples=resamples,
        seed=seed,
    )


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-evaluate``; the exit status.

    Raises:
        ConfigurationError: one line, and no output.
    """
    args = build_parser().parse_args(argv)
    evaluation = evaluate(args)
    if args.json == STDOUT:
        print(json.dumps(as_json(evaluation), indent=2))
        return 0
    if args.json is not None:
        write_json(Path(args.json), as_json(evaluation))
    print(as_text(evaluation))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
