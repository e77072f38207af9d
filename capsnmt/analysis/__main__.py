"""``capsnmt-analyse NAME=CHECKPOINT... --data DATA --output DIR``: what the mechanisms do."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional, Sequence

from capsnmt.cli import (
    ConfigurationError,
    OneLineParser,
    at_least,
    comma_list,
    positive,
    quiet,
    require,
    run_command,
    seed,
    shown,
)
from capsnmt.files import check_file_name, check_output_folder

if TYPE_CHECKING:
    from capsnmt.analysis.model import NamedCheckpoint

MOST_BROWSER_SENTENCES = 50


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-analyse``."""
    parser = OneLineParser(
        prog="capsnmt-analyse",
        description="Write numbers (CSV), figures (PNG, SVG) and a page about trained models.",
    )
    add = parser.add_argument
    add(
        "systems",
        nargs="+",
        metavar="NAME=CHECKPOINT|RUN",
        help="a checkpoint and its name on the page, or a finished run (OUTPUT/ROW/seed-S); give "
        "the baseline first",
    )
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="binarised data of the checkpoints; a run's own data by default",
    )
    add("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    add("--subset", default="test", help="subset of the data (default test)")
    add(
        "--sentences",
        type=positive,
        default=1500,
        metavar="N",
        help="number of sentences, chosen at random (default 1500)",
    )
    add("--seed", type=seed, default=1, help="seed of the choice (default 1)")
    add(
        "--max-tokens",
        type=positive,
        default=2000,
        metavar="N",
        help="tokens of a batch on its longer side, padding included; bounds the memory "
        "(default 2000)",
    )
    add("--only", metavar="NAMES", help="comma-separated list of analyses (default: all)")
    add(
        "--browser-sentences",
        type=at_least(0, MOST_BROWSER_SENTENCES),
        default=10,
        metavar="N",
        help=f"sentences in the browser of the page, at most {MOST_BROWSER_SENTENCES} (default 10)",
    )
    add(
        "--ablation-sentences",
        type=at_least(0),
        default=200,
        metavar="N",
        help="sentences on which every head and layer is switched off in turn, which takes most of "
        "the time; 0 leaves it out (default 200)",
    )
    add(
        "--ablation-translations",
        type=at_least(0),
        default=0,
        metavar="N",
        help="sentences translated without each encoder layer in turn, for BLEU and its "
        "significance; slow on a CPU (default 0)",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default auto")
    return parser


def named_checkpoints(arguments: Sequence[str], data: Optional[Path]) -> List[NamedCheckpoint]:
    """Return the checkpoints that the arguments name, in their order.

    A run is named after its row, and its seed if several runs are of this row.

    Args:
        arguments: ``NAME=CHECKPOINT``, or folders of finished runs.
        data: ``--data``; without it, a run is analysed on the data of its training.

    Raises:
        ConfigurationError: an argument is neither, a name is not one of a file or is given twice,
            or a checkpoint has no data.
    """
    from capsnmt.analysis.model import NamedCheckpoint
    from capsnmt.corpora.prepared import PreparedData
    from capsnmt.runs.finished import find_runs

    runs = {
        argument: find_runs([Path(argument)]).finished
        for argument in arguments
        if Path(argument).is_dir() or not (Path(argument).exists() or "=" in argument)
    }
    rows = [run.row for several in runs.values() for run in several]
    found: List[NamedCheckpoint] = []
    for argument in arguments:
        name, equals, checkpoint = argument.partition("=")
        for run in runs.get(argument, []):
            if run.config.classifies:
                raise ConfigurationError(
                    f"{run.folder} classifies sentences: give runs that translate"
                )
            name = f"{run.row}-seed-{run.seed}" if rows.count(run.row) > 1 else run.row
            own = data or PreparedData(run.data).binarised
            found.append(NamedCheckpoint(name.replace("/", "-"), run.model, own))
        if argument in runs:
            continue
        if not equals or Path(argument).exists():
            raise ConfigurationError(
                f"{shown(argument)}: give NAME=CHECKPOINT, or the folder of a finished run"
            )
        if data is None:
            raise ConfigurationError(
                f"--data is missing: {shown(argument)} is a checkpoint: give the folder of its "
                "binarised data"
            )
        found.append(NamedCheckpoint(name, Path(checkpoint), data))
    names = [each.name for each in found]
    for name in names:
        check_file_name(name, "name of a system")
        if names.count(name) > 1:
            raise ConfigurationError(f"{name}: two systems have this name: rename one")
    return found


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-analyse`` and return the exit status."""
    with quiet():  # the progress of the libraries would hide ours
        return run_command(lambda: _run(argv))


def _run(argv: Optional[Sequence[str]]) -> None:
    args = build_parser().parse_args(argv)
    command = shlex.join(["capsnmt-analyse", *(sys.argv[1:] if argv is None else argv)])
    check_output_folder(args.output, "--output")
    if (args.output / "figures").exists() and not (args.output / "analysis.html").exists():
        raise ConfigurationError(
            f"--output {args.output}: its folder figures is not of an analysis, which would "
            "replace it: give another folder"
        )
    require("fairseq", "report")

    # after parsing: --help and a mistyped flag do not wait for torch and fairseq
    from capsnmt.analysis.analyse import ANALYSES, analyse
    from capsnmt.analysis.model import Settings
    from capsnmt.analysis.page import write

    given = vars(args)
    systems, data, output, only = (given.pop(key) for key in ("systems", "data", "output", "only"))
    try:
        names = comma_list(tuple(ANALYSES))(only) if only is not None else list(ANALYSES)
    except argparse.ArgumentTypeError as error:
        raise ConfigurationError(f"--only {error}") from None
    findings = analyse(named_checkpoints(systems, data), Settings(**given), names)
    page = write(findings, output, command)
    figures = len([*(output / "figures").glob("*.svg")])
    print(
        f"analysis: {page}, {len(findings.of)} CSV file(s), {figures} figure(s) as PNG and SVG in "
        "figures"
    )


if __name__ == "__main__":
    sys.exit(main())
