"""``capsnmt-analyse NAME=CHECKPOINT... --data DATA --output DIR``: what the mechanisms do."""

import argparse
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable, List, Optional, Sequence, Tuple

from capsnmt import cli
from capsnmt.files import check_file_name

if TYPE_CHECKING:  # --help does not wait for torch
    from capsnmt.analysis.model import NamedCheckpoint


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-analyse``."""
    parser = cli.OneLineParser(
        prog="capsnmt-analyse",
        description="Write numbers (CSV), figures (PNG, SVG) and a page about trained models.",
    )
    add = parser.add_argument
    models = "a checkpoint and its name, or a finished run; give the baseline first"
    add("systems", nargs="+", metavar="NAME=CHECKPOINT|RUN", help=models)
    add("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    add("--data", type=Path, metavar="DIR", help="binarised or prepared data (default: the run's)")
    cli.add_user_dir(parser)
    add("--subset", default="test", help="subset of the data (default test)")

    def number(name: str, kind: Callable[[str], int], default: int, text: str) -> None:
        text += f" (default {default})"
        add(f"--{name}", type=kind, default=default, metavar="N", help=text)

    whole = cli.at_least(0)
    number("sentences", cli.positive, 1500, "sentences, chosen at random")
    number("seed", cli.seed, 1, "seed of the choice")
    number(
        "max-tokens", cli.positive, 2000, "tokens per batch, with padding; they bound the memory"
    )
    number("browser-sentences", cli.at_least(0, 50), 10, "sentences in the browser, at most 50")
    number("ablation-sentences", whole, 200, "sentences read without each head and layer; 0: none")
    number("ablation-translations", whole, 0, "sentences translated without each encoder layer")
    add("--only", type=cli.comma_list(), metavar="NAMES", help="analyses by commas (default: all)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default auto")
    return parser


def named_checkpoints(arguments: Sequence[str], data: Optional[Path]) -> List["NamedCheckpoint"]:
    """Return the checkpoints that the arguments name, in their order.

    A run without a name has that of its row; its seed is added if several have one name.
    """
    from capsnmt.analysis.model import NamedCheckpoint
    from capsnmt.corpora.prepared import PreparedData
    from capsnmt.runs.finished import find_runs

    if data is not None and PreparedData(data).manifest.is_file():  # as capsnmt-translate takes it
        data = PreparedData(data).binarised
    found: List[Tuple[NamedCheckpoint, str]] = []  # with a longer name
    for argument in arguments:
        path, (name, equals, file) = Path(argument), argument.partition("=")
        if path.is_file():
            raise cli.ConfigurationError(
                f"{argument} is a file without a name; give NAME={argument}"
            )
        of_run = bool(file) and Path(file).is_dir() and not path.is_dir()
        if path.is_dir() or not equals or of_run:
            for run in find_runs([Path(file) if of_run else path]):
                row = name if of_run else run.row.replace("/", "-")
                own = data or PreparedData(run.data).binarised
                if not run.settings.classifies:  # loading refuses one that does
                    run.check_dictionaries(own)
                checkpoint = NamedCheckpoint(row, run.model, own, run.settings.model_overrides)
                found.append((checkpoint, f"{row}-seed-{run.seed}"))
        elif data is None:
            raise cli.ConfigurationError(
                f"{argument} has no data; give the binarised ones by --data"
            )
        else:
            found.append((NamedCheckpoint(name, Path(file), data), name))
    short = Counter(each.name for each, _ in found)
    named = [replace(each, name=long) if short[each.name] > 1 else each for each, long in found]
    for name, count in Counter(each.name for each in named).items():
        check_file_name(name, "name of a system")
        if count > 1:
            raise cli.ConfigurationError(f"{name} is the name of two systems; rename one")
    return named


@cli.quiet()  # the progress of the libraries would hide ours
@cli.command
def main(argv: List[str]) -> None:
    """Run ``capsnmt-analyse`` and return the exit status."""
    parser = build_parser()
    args = parser.parse_args(argv)
    cli.require("fairseq", "report")

    # after parsing: --help and a mistyped flag do not wait for torch and fairseq
    from capsnmt.host import load_plugin

    load_plugin(args.user_dir)
    from capsnmt.analysis.analyse import ANALYSES, analyse, write
    from capsnmt.analysis.model import Scope

    given = vars(args)
    del given["user_dir"]
    systems, data, output, only = (given.pop(key) for key in ("systems", "data", "output", "only"))
    for name in only or ():
        if name not in ANALYSES:
            raise cli.ConfigurationError(f"--only is {name!r}; choose from {', '.join(ANALYSES)}")
    sizes = {name: each.size for name, each in ANALYSES.items() if each.size}
    for flag in sizes.values():
        of = [name for name in sizes if sizes[name] == flag]
        if only and not {*of} & {*only} and given[flag] not in (0, parser.get_default(flag)):
            raise cli.ConfigurationError(
                f"--{flag.replace('_', '-')} is {given[flag]}, which is of {' and '.join(of)}; add "
                f"one to --only, or drop it"
            )
    cli.check_output_file(output / "analysis.md", "--output")  # before the work, not after
    findings = analyse(named_checkpoints(systems, data), Scope(**given), only or tuple(ANALYSES))
    page = write(findings, output, shlex.join(["capsnmt-analyse", *argv]))
    print(f"analysis: {page}, {len(findings.of)} CSV file(s), figures as PNG and SVG")


if __name__ == "__main__":
    raise SystemExit(main())
