"""``capsnmt-evaluate``: score translations against one reference, and test their differences."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import List, Optional, Sequence

from capsnmt.arguments import positive
from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.compare_mt import check_folder
from capsnmt.evaluation.evaluate import RESAMPLES, SEED, evaluate
from capsnmt.evaluation.report import as_json, as_text
from capsnmt.evaluation.systems import TextSettings, split_name
from capsnmt.evaluation.text import DETOKENIZE, REMOVE_BPE, language
from capsnmt.files import read_json, write_json

STDOUT = "-"


def build_parser() -> argparse.ArgumentParser:
    """The command line of ``capsnmt-evaluate``."""
    parser = argparse.ArgumentParser(prog="capsnmt-evaluate", description=__doc__)
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
    parser.add_argument(
        "--reference", metavar="FILE", help="the raw reference (default: the T- lines)"
    )
    parser.add_argument(
        "--tokenized-reference",
        metavar="FILE",
        help="for tokenised BLEU of the tokens as decoded (default: Moses tokenises both texts)",
    )
    parser.add_argument(
        "--source",
        metavar="FILE",
        help="tokens, for BLEU by source length (default: the S- lines)",
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
        type=language,
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
        "--compare-mt",
        type=Path,
        metavar="DIR",
        help="write compare-mt's report into DIR, too: its bootstrap, of half of the sentences, is "
        "not ours",
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
        ConfigurationError: a flag without effect, or a report that would replace something else.
    """
    if args.baseline is None and args.compare_mt is None:
        for flag, value in (("--resamples", args.resamples), ("--seed", args.seed)):
            if value is not None:
                raise ConfigurationError(f"{flag} has no effect without --baseline SYSTEM: drop it")
    if args.reference is None and args.input == "plain":
        raise ConfigurationError("--input plain has no T- lines: give --reference FILE")
    if args.compare_mt is not None:
        check_folder(args.compare_mt)
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


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-evaluate``; the exit status.

    Raises:
        ConfigurationError: one line, and no output.
    """
    args = build_parser().parse_args(argv)
    check_arguments(args)
    systems = baseline_first(args.systems, args.baseline)
    evaluation = evaluate(systems, text_settings(args), args)
    if args.json == STDOUT:
        print(json.dumps(as_json(evaluation), indent=2))
        return 0
    if args.json is not None:
        write_json(Path(args.json), as_json(evaluation))
    print(as_text(evaluation))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
