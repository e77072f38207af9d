"""``capsnmt-report DIR... --output DIR``: one page over finished runs, as HTML and as Markdown."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Iterator, Optional, Sequence

from capsnmt.arguments import OneLineParser
from capsnmt.errors import ConfigurationError
from capsnmt.report.classification import classification
from capsnmt.report.page import HTML, MARKDOWN, Part, write_page
from capsnmt.report.translation import translation
from capsnmt.runs.classification import load_classifier_run
from capsnmt.runs.find import find_runs
from capsnmt.runs.finished import check_comparable, load_run


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Write the report; the exit status: 0, or 2 for bad input, which leaves nothing behind."""
    # fairseq opens the root logger wide, and then matplotlib tells of every font it looks at.
    logging.disable(logging.INFO)
    try:
        args = parse(argv)
        page = write_page(list(parts(args.runs, args.samples)), args.output, args.title)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    finally:
        logging.disable(logging.NOTSET)
    print(f"report: {page} and {page.with_name(MARKDOWN)}")
    return 0


def parts(folders: Sequence[Path], samples: int) -> Iterator[Part]:
    """Translation, then classifiers, as far as the folders have them.

    Raises:
        ConfigurationError: a folder has no finished run, or a run is damaged.
    """
    found = find_runs(folders)
    for folder in found.unfinished:
        print(f"warning: {folder}: is not finished, and left out", file=sys.stderr)
    classifiers = [folder for folder in found.finished if folder.result.is_file()]
    translators = [folder for folder in found.finished if folder not in classifiers]
    if translators:
        runs = [load_run(folder) for folder in translators]
        check_comparable(runs)
        yield translation(runs, samples)
    if classifiers:
        yield classification([load_classifier_run(folder) for folder in classifiers])


def parse(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """The flags.

    Raises:
        ConfigurationError: a flag is unknown or a value is wrong.
    """
    parser = OneLineParser(
        prog="capsnmt-report",
        description=f"Write {HTML} and {MARKDOWN} over finished runs of the launchers.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="OUTPUT/ROW/seed-S, the baseline first; or OUTPUT/ROW for all its seeds; or OUTPUT "
        "for all rows; or an OUTPUT of classifiers",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where to")
    parser.add_argument(
        "--samples", type=_samples, default=20, metavar="N", help="sentences shown (default 20)"
    )
    parser.add_argument("--title", help="heading of the page (default: data set and languages)")
    return parser.parse_args(argv)


def _samples(value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise argparse.ArgumentTypeError(f"{value!r}: give a whole number, 0 or more")
    return int(value)


if __name__ == "__main__":
    sys.exit(main())
