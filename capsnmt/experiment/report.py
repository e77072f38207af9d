"""``python -m capsnmt.experiment.report RUN... --output DIR``: one page over finished runs."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from capsnmt.arguments import OneLineParser
from capsnmt.errors import ConfigurationError
from capsnmt.experiment import report_markdown as markdown
from capsnmt.experiment.learning_curve import draw
from capsnmt.experiment.report_machine import describe_machine
from capsnmt.experiment.report_run import ReportedRun, check_comparable, distinct_names, load_run
from capsnmt.experiment.report_samples import read_samples
from capsnmt.files import beside, read_json, written_beside

PAGE, PICTURE = "report.md", "learning_curve.png"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Write the report; the exit status: 0, or 2 for bad input, which leaves nothing behind."""
    try:
        args = parse(argv)
        runs = [load_run(folder) for folder in args.runs]
        check_comparable(runs)
        page = write_report(runs, args.output, args.samples, args.title)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"report: {page}")
    return 0


def parse(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """The flags.

    Raises:
        ConfigurationError: a flag is unknown or a value is wrong.
    """
    parser = OneLineParser(
        prog="python -m capsnmt.experiment.report",
        description=f"Write {PAGE} and {PICTURE} over finished runs of the launcher.",
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="OUTPUT/ROW/seed-S, the baseline first"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where to")
    parser.add_argument(
        "--samples", type=_samples, default=20, metavar="N", help="sentences shown (default 20)"
    )
    parser.add_argument("--title", help="heading of the page (default: data set and languages)")
    return parser.parse_args(argv)


def write_report(
    runs: Sequence[ReportedRun], output: Path, samples: int = 20, title: Optional[str] = None
) -> Path:
    """Write the page and its picture, whole or not at all, and return the page.

    Args:
        runs: of the same test sets, the baseline first.
        output: the folder.
        samples: sample translations of each test set.
        title: of the page.

    Raises:
        ConfigurationError: a file of a run is missing or damaged.
    """
    title = title or default_title(runs[0])
    names = distinct_names(runs)
    content = compose(runs, names, samples, title)
    output.mkdir(parents=True, exist_ok=True)
    picture = output / PICTURE
    try:
        curves = {name: run.curve for name, run in zip(names, runs)}
        draw(curves, beside(picture), title)
        os.replace(beside(picture), picture)
    finally:
        beside(picture).unlink(missing_ok=True)
    with written_beside(output / PAGE) as file:
        file.write(content)
    return output / PAGE


def compose(runs: Sequence[ReportedRun], names: List[str], samples: int, title: str) -> str:
    """The page as Markdown.

    Raises:
        ConfigurationError: a file of a run is missing or damaged.
    """
    first = runs[0]
    sections = {
        "": markdown.summary(runs, names),
        "Scores": (
            part for test_set in first.scores for part in markdown.scores(runs, names, test_set)
        ),
        "Training": markdown.training(runs, names, PICTURE),
    }
    for test_set in first.scores if samples else ():
        drawn = read_samples(runs, test_set, samples)
        sections[f"Sample translations of {markdown.text(test_set)}"] = markdown.samples(
            drawn, names, first.languages
        )
    manifest = read_json(first.data / "manifest.json")
    sections["Data"] = markdown.data(manifest, first.languages)
    sections["Commands"] = markdown.commands(runs, names)
    sections["Versions and machine"] = markdown.versions(runs, names, describe_machine())
    return markdown.document(title, sections)


def default_title(run: ReportedRun) -> str:
    """The data set and the languages of a run."""
    dataset = run.config["settings"].get("dataset", "Experiment")
    return f"{dataset}, {run.languages[0]} to {run.languages[1]}"


def _samples(value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise argparse.ArgumentTypeError(f"{value!r}: give a whole number, 0 or more")
    return int(value)


if __name__ == "__main__":
    # fairseq opens the root logger wide, and then matplotlib tells of every font it looks at.
    logging.disable(logging.INFO)
    sys.exit(main())
