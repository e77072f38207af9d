"""``capsnmt-report DIR... --output DIR``: finished runs on one page, as HTML and as Markdown."""

import argparse
import shlex
from functools import partial
from pathlib import Path
from typing import List

from capsnmt.cli import OneLineParser, at_least, check_output_file, command, require
from capsnmt.configurations import SENTENCE_TASKS

TEMPLATE = Path(__file__).with_name("report.md.j2")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-report``."""
    parser = OneLineParser(
        prog="capsnmt-report", description="Write report.html and report.md about finished runs."
    )
    add = parser.add_argument
    folders = "a run, all seeds of a row or all rows; give the baseline first"
    add("runs", nargs="+", type=Path, metavar="DIR", help=folders)
    add("--output", type=Path, required=True, metavar="DIR", help="folder of the report")
    translations = "number of sample translations (default 20)"
    add("--samples", type=at_least(0), default=20, metavar="N", help=translations)
    add("--title", help="heading of the page (default: data set and languages)")
    return parser


@command
def main(argv: List[str]) -> None:
    """Run ``capsnmt-report`` and return the exit status; an error leaves no file behind."""
    args = build_parser().parse_args(argv)
    require("report")

    # after parsing: --help and a mistyped flag do not wait for these
    from capsnmt.pages.page import write_page
    from capsnmt.pages.plots import Figures
    from capsnmt.report.classifier_runs import logical_inference, probing
    from capsnmt.report.tables import scores_csv, versions
    from capsnmt.report.translation_runs import analysis_of, translation
    from capsnmt.runs.finished import distinct_names, find_runs

    check_output_file(args.output / "report.md", "--output")  # before the work, not after
    runs = find_runs(args.runs)
    translators = [run for run in runs if not run.settings.classifies]
    of_task = {
        task: [run for run in runs if run.settings.classifies and run.result.task == task]
        for task in SENTENCE_TASKS
    }
    launched = dict.fromkeys(run.config.command[1:] for run in runs)
    devices = {(part.device, part.device_name) for run in runs for part in run.training.parts}
    values = {
        "title": args.title,
        "analysis": analysis_of(args.output, runs),
        "commands": [shlex.join(["capsnmt-run", *words]) for words in launched if words],
        "initial": {
            name: run.training.initial
            for name, run in zip(distinct_names(runs), runs)
            if run.training.initial
        },
        "devices": [f"{device} ({name})" for device, name in sorted(devices)],
        "versions": versions(runs),
    }
    figures: Figures = {}
    for part, chosen, describe in (
        ("translation", translators, partial(translation, sample_count=args.samples)),
        ("probing", of_task["probing"], probing),
        ("logical_inference", of_task["logical_inference"], logical_inference),
    ):
        values[part], drawn = describe(chosen) if chosen else (None, {})
        figures.update(drawn)
    page = write_page(TEMPLATE, args.output, values, figures, {"scores.csv": scores_csv(runs)})
    print(f"report: {page} and {page.with_suffix('.md')}")


if __name__ == "__main__":
    raise SystemExit(main())
