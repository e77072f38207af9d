"""``capsnmt-average``: one checkpoint whose parameters are the mean of several checkpoints.

It averages checkpoints that fairseq-train wrote during one run: the last by update, the last by
epoch, or the best by the validation metric. Vaswani et al. (2017, section 6.1) report their
Transformers with the last checkpoints averaged.

fairseq's own script (``scripts/average_checkpoints.py``) is not part of its wheels, and cannot load
checkpoints on torch >= 2.6.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Optional, Sequence

from capsnmt.cli import OneLineParser, check_output, positive, run_command


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-average``."""
    parser = OneLineParser(
        prog="capsnmt-average",
        description="Write a checkpoint whose parameters are the mean of several checkpoints.",
    )
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="DIR|FILE", help="one --save-dir, or checkpoints"
    )
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="the averaged checkpoint"
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--last-updates", type=positive, metavar="N", help="the last N checkpoint_EPOCH_UPDATE.pt"
    )
    choice.add_argument(
        "--last-epochs", type=positive, metavar="N", help="the last N checkpointEPOCH.pt"
    )
    choice.add_argument(
        "--best", type=positive, metavar="K", help="the best K checkpoint.best_METRIC_VALUE.pt"
    )
    parser.add_argument(
        "--upper-bound",
        type=positive,
        metavar="U",
        help="ignore checkpoints after this update (--last-updates) or epoch (--last-epochs)",
    )
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-average`` and return the exit status."""
    return run_command(lambda: _run(argv))


def _run(argv: Optional[Sequence[str]]) -> None:
    args = build_parser().parse_args(argv)

    # after parsing: --help and a mistyped flag do not wait for torch
    from capsnmt.checkpoints.load import save_checkpoint
    from capsnmt.checkpoints.mean import average_checkpoints
    from capsnmt.checkpoints.selection import select_checkpoints

    paths = select_checkpoints(
        args.inputs,
        last_updates=args.last_updates,
        last_epochs=args.last_epochs,
        best=args.best,
        upper_bound=args.upper_bound,
    )
    check_output(args.output, paths)  # before the work, not after
    save_checkpoint(average_checkpoints(paths), args.output)
    names = " ".join(path.name for path in paths)
    print(f"{args.output}: the mean of {len(paths)} checkpoints, all weights finite: {names}")


if __name__ == "__main__":
    raise SystemExit(main())
