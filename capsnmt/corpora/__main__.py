"""The command ``capsnmt-prepare RECIPE --output DIR``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from capsnmt.cli import (
    ConfigurationError,
    OneLineParser,
    add_mirrors,
    positive,
    require,
    run_command,
)
from capsnmt.files import bundled_names, check_output_folder

CORES = os.cpu_count() or 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return run_command(lambda: _prepare(given), interrupted="stopped: the same command resumes")


def build_parser() -> OneLineParser:
    """Return the parser of the command line."""
    parser = OneLineParser(
        prog="capsnmt-prepare",
        description="Prepare a parallel corpus, down to a fairseq data-bin in OUTPUT/bin. "
        "The same command resumes: it repeats only steps that are missing or have changed.",
    )
    names = ", ".join(bundled_names("recipes"))
    parser.add_argument("recipe", help=f"{names}, or the path of a .yaml")
    parser.add_argument("--output", type=Path, required=True, help="folder for all output")
    parser.add_argument("--pair", help="SOURCE-TARGET, if the recipe offers several")
    parser.add_argument(
        "--corpora", help="NAME,NAME...: training corpora of the recipe to use (default: all)"
    )
    parser.add_argument(
        "--deduplicate", action="store_true", help="drop repeated training pairs, as tokenised"
    )
    parser.add_argument(
        "--local",
        "--data",
        dest="local",
        type=Path,
        metavar="DIR",
        help="folder that holds the source files; nothing is fetched",
    )
    add_mirrors(parser)
    parser.add_argument("--offline", action="store_true", help="never use the network")
    parser.add_argument(
        "--workers",
        type=positive,
        default=CORES,
        help="processes, at most one for each core (default: all)",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read every file again, not only changed ones",
    )
    return parser


def _prepare(given: Sequence[str]) -> None:
    options = build_parser().parse_args(given)
    if options.local is not None and not options.local.is_dir():
        raise ConfigurationError(f"--local {options.local}: no such folder")
    check_output_folder(options.output, "--output")
    # Imported here, because tokenisers and models take seconds that --help does not need.
    require("data", "fairseq")
    from capsnmt.corpora.console import say
    from capsnmt.corpora.engine import Options, prepare
    from capsnmt.corpora.recipe import load_recipe

    recipe = load_recipe(options.recipe, options.pair, options.corpora)
    if options.deduplicate:
        recipe = replace(recipe, cleaning=replace(recipe.cleaning, deduplicate=True))
    how = Options(
        local=options.local,
        offline=options.offline,
        mirrors=options.mirrors,
        workers=min(options.workers, CORES),
        command=shlex.join(["python", "-m", "capsnmt.corpora", *given]),
        verify=options.verify,
    )
    say(f"data-bin: {prepare(recipe, options.output, how)}")


if __name__ == "__main__":
    sys.exit(main())
