"""``capsnmt-report DIR... --output DIR``: finished runs on one page, as HTML and as Markdown."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

from capsnmt.cli import OneLineParser, at_least, require, run_command
from capsnmt.files import check_output_folder


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-report``."""
    parser = OneLineParser(
        prog="capsnmt-report",
        description="Write report.html and report.md about finished runs.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="a run (OUTPUT/ROW/seed-S), all seeds of a row (OUTPUT/ROW) or all rows (OUTPUT); "
        "give the baseline first",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="folder of the report"
    )
    parser.add_argument(
        "--samples",
        type=at_least(0),
        default=20,
        metavar="N",
        help="number of sample translations (default 20)",
    )
    parser.add_argument("--title", help="heading of the page (default: data set and languages)")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-report`` and return the exit status; an error leaves no file behind."""
    return run_command(lambda: _run(argv))


def _run(argv: Optional[Sequence[str]]) -> None:
    args = build_parser().parse_args(argv)
    check_output_folder(args.output, "--output")
    require("report")

    # after parsing: --help and a mistyped flag do not wait for matplotlib
    from capsnmt.report.contents import parts
    from capsnmt.report.page import MARKDOWN, write_page

    found = list(parts(args.runs, args.samples, args.output))
    page = write_page(found, args.output, args.title or "")
    print(f"report: {page} and {page.with_name(MARKDOWN)}")


if __name__ == "__main__":
    sys.exit(main())
