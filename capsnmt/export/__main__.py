"""``capsnmt-export RUN --output FILE``: write a checkpoint of fairseq's own ``transformer``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

from capsnmt.cli import OneLineParser, check_output, require, run_command


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-export``."""
    parser = OneLineParser(
        prog="capsnmt-export",
        description="Write a model whose switches are all off as a checkpoint of fairseq's own "
        "transformer, which CTranslate2 converts.",
    )
    parser.add_argument(
        "model",
        type=Path,
        metavar="RUN|CHECKPOINT",
        help="a finished run (OUTPUT/ROW/seed-S), or a checkpoint",
    )
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="the checkpoint to write"
    )
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-export`` and return the exit status."""
    return run_command(lambda: _run(build_parser().parse_args(argv)))


def _run(args: argparse.Namespace) -> None:
    require("fairseq")
    # after parsing: --help and a mistyped flag do not wait for torch and fairseq
    from capsnmt.checkpoints.load import load_checkpoint, save_checkpoint
    from capsnmt.checkpoints.export import stock_checkpoint
    from capsnmt.runs.finished import FinishedRun

    path = args.model if args.model.is_file() else FinishedRun(args.model).model
    check_output(args.output, [path])
    save_checkpoint(stock_checkpoint(load_checkpoint(path), path), args.output)
    print(f"{args.output}: the model in {path} as fairseq's own transformer")


if __name__ == "__main__":
    sys.exit(main())
