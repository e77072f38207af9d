"""``capsnmt-analyse NAME=CHECKPOINT... --data DATA --output DIR``: what the mechanisms do."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Optional, Sequence

from capsnmt.cli import (
    ExecutionError,
    OneLineParser,
    at_least,
    positive,
    quiet,
    require,
    run_command,
    seed,
)
from capsnmt.files import check_output_folder

MOST_BROWSER_SENTENCES = 200


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-analyse``."""
    parser = OneLineParser(
        prog="capsnmt-analyse",
        description="Write numbers (CSV), figures (PNG, SVG) and a page about trained models.",
    )
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="NAME=CHECKPOINT|RUN",
        help="a checkpoint and its name on the page, or a finished run (OUTPUT/ROW/seed-S); give "
        "the baseline first",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="binarised data of the checkpoints; a run's own data by default",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--subset", default="test", help="subset of the data (default test)")
    parser.add_argument(
        "--sentences",
        type=positive,
        default=1500,
        metavar="N",
        help="number of sentences, chosen at random (default 1500)",
    )
    parser.add_argument("--seed", type=seed, default=1, help="seed of the choice (default 1)")
    parser.add_argument(
        "--max-tokens",
        type=positive,
        default=2000,
        metavar="N",
        help="tokens of a batch on its longer side, padding included; bounds the memory "
        "(default 2000)",
    )
    parser.add_argument(
        "--only", metavar="NAMES", help="comma-separated list of analyses (default: all)"
    )
    parser.add_argument(
        "--browser-sentences",
        type=at_least(0, MOST_BROWSER_SENTENCES),
        default=10,
        metavar="N",
        help=f"sentences in the browser of the page, at most {MOST_BROWSER_SENTENCES} (default 10)",
    )
    parser.add_argument(
        "--ablation-sentences",
        type=at_least(0),
        default=200,
        metavar="N",
        help="sentences on which every head and layer is switched off in turn, which takes most of "
        "the time; 0 leaves it out (default 200)",
    )
    parser.add_argument(
        "--ablation-translations",
        type=at_least(0),
        default=0,
        metavar="N",
        help="sentences translated without each encoder layer in turn, for BLEU and its "
        "significance; slow on a CPU (default 0)",
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default auto"
    )
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-analyse`` and return the exit status."""
    with quiet():  # the progress of the libraries would hide ours
        return run_command(lambda: _run(argv))


def _run(argv: Optional[Sequence[str]]) -> None:
    args = build_parser().parse_args(argv)
    command = shlex.join(["capsnmt-analyse", *(sys.argv[1:] if argv is None else argv)])
    check_output_folder(args.output, "--output")
    require("fairseq", "report")

    # after parsing: --help and a mistyped flag do not wait for torch and fairseq
    from capsnmt.analysis.analyse import analyse
    from capsnmt.analysis.model import Options
    from capsnmt.analysis.output import write
    from capsnmt.analysis.subjects import chosen_analyses, subjects

    findings = analyse(
        subjects(args.systems, args.data),
        subset=args.subset,
        sentences=args.sentences,
        seed=args.seed,
        max_tokens=args.max_tokens,
        device=args.device,
        only=chosen_analyses(args.only),
        options=Options(
            args.browser_sentences, args.ablation_sentences, args.ablation_translations
        ),
    )
    *others, page = write(findings, args.output, command)
    tables = sum(path.suffix == ".csv" for path in others)
    figures = sum(path.suffix == ".svg" for path in others)
    print(f"analysis: {page}, {tables} CSV file(s), {figures} figure(s) as PNG and SVG in figures")
    if findings.failed:
        raise ExecutionError(f"not analysed: {', '.join(findings.failed)} (see above)")


if __name__ == "__main__":
    sys.exit(main())
