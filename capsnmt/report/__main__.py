"""``capsnmt-report DIR... --output DIR``: one page over finished runs, as HTML and as Markdown."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from capsnmt.arguments import OneLineParser
from capsnmt.errors import ConfigurationError
from capsnmt.files import beside, read_json
from capsnmt.report import (
    details,
    html,
    markdown,
    records,
    results,
)
from capsnmt.report.blocks import Block, Document
from capsnmt.report.details import CURVES, LENGTHS
from capsnmt.report.figures import bleu_by_length, drawing, learning_curves, save, svg
from capsnmt.report.machine import describe_machine
from capsnmt.report.run import ReportedRun, check_comparable, distinct_names, load_run
from capsnmt.report.runs import find_runs
from capsnmt.report.systems import ReportedSystem, group
from capsnmt.report.test_set import TestSet, read_test_set

HTML, MARKDOWN = "report.html", "report.md"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Write the report; the exit status: 0, or 2 for bad input, which leaves nothing behind."""
    # fairseq opens the root logger wide, and then matplotlib tells of every font it looks at.
    logging.disable(logging.INFO)
    try:
        args = parse(argv)
        folders, unfinished = find_runs(args.runs)
        for folder in unfinished:
            print(f"warning: {folder}: is not finished, and left out", file=sys.stderr)
        runs = [load_run(folder) for folder in folders]
        check_comparable(runs)
        page = write_report(runs, args.output, args.samples, args.title)
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


def parse(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """The flags.

    Raises:
        ConfigurationError: a flag is unknown or a value is wrong.
    """
    parser = OneLineParser(
        prog="capsnmt-report",
        description=f"Write {HTML} and {MARKDOWN} over finished runs of the launcher.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="OUTPUT/ROW/seed-S, the baseline first; or OUTPUT/ROW for all its seeds; or OUTPUT "
        "for all rows",
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
    """Write the page, as HTML and as Markdown with its pictures, and return the first.

    All files are written beside and then renamed, the pages last: what stands there is whole.

    Args:
        runs: of the same test sets, the baseline first.
        output: the folder.
        samples: sample translations of each test set.
        title: of the page.

    Raises:
        ConfigurationError: a file of a run is missing or damaged, or a package is.
    """
    systems = group(runs)
    test_sets = [read_test_set(systems, name) for name in runs[0].scores]
    lengths = {test_set.name: test_set.by_length() for test_set in test_sets}
    names = [system.name for system in systems]
    with drawing():
        figures = {
            CURVES: learning_curves(
                {system.name: [run.curve for run in system.runs] for system in systems}
            )
        }
        for name, found in lengths.items():
            by_name = dict(zip(names, found.bleu))
            figures[f"{LENGTHS}-{name}"] = bleu_by_length(by_name, found.counts)
        document = compose(runs, systems, test_sets, lengths, samples, title)
        pictures = {name: svg(figure, name) for name, figure in figures.items()}
        pages = {
            HTML: html.render(document, pictures),
            MARKDOWN: markdown.render(document),
        }
        output.mkdir(parents=True, exist_ok=True)
        write_whole(output, figures, pages)
    return output / HTML


def write_whole(output: Path, figures: Dict[str, Any], pages: Dict[str, str]) -> None:
    """Write all files beside their places, then rename them."""
    with ExitStack() as stack:
        paths = [output / f"{name}.png" for name in figures] + [output / name for name in pages]
        for path in paths:
            stack.callback(beside(path).unlink, missing_ok=True)
        for path, figure in zip(paths, figures.values()):
            save(figure, beside(path))
        for path, content in zip(paths[len(figures) :], pages.values()):
            beside(path).write_text(content, encoding="utf-8", errors="replace")
        for path in paths:
            os.replace(beside(path), path)


def compose(
    runs: Sequence[ReportedRun],
    systems: Sequence[ReportedSystem],
    test_sets: Sequence[TestSet],
    lengths: Dict[str, Any],
    samples: int,
    title: Optional[str],
) -> Document:
    """All that the page says.

    Raises:
        ConfigurationError: a file of a run is missing or damaged.
    """
    names, each_run = [system.name for system in systems], distinct_names(runs)
    sections: Dict[str, List[Block]] = {
        "Results": [
            *results.results(systems),
            *results.comparisons(runs, each_run),
        ],
        "Scores": [
            block
            for test_set in test_sets
            for block in results.scores(runs, each_run, test_set.name)
        ],
        "Training": list(details.training(runs, each_run)),
        "Length of the source": [
            block
            for name, found in lengths.items()
            for block in details.lengths(name, names, found)
        ],
    }
    for test_set in test_sets if samples else ():
        sections[f"Sample translations of {test_set.name}"] = list(
            details.translations(test_set, names, samples)
        )
    manifest = read_json(runs[0].data / "manifest.json")
    sections["Data"] = list(records.data(manifest, runs[0].languages))
    sections["Commands"] = list(records.commands(runs, each_run))
    sections["Versions and machine"] = list(records.versions(runs, each_run, describe_machine()))
    return Document(
        title or default_title(runs[0]), list(results.summary(runs, each_run)), sections
    )


def default_title(run: ReportedRun) -> str:
    """The data set and the languages of a run."""
    dataset = run.config["settings"].get("dataset", "Experiment")
    return f"{dataset}, {run.languages[0]} to {run.languages[1]}"


def _samples(value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise argparse.ArgumentTypeError(f"{value!r}: give a whole number, 0 or more")
    return int(value)


if __name__ == "__main__":
    sys.exit(main())
