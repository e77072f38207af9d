"""The command line: ``python -m capsnmt.corpora RECIPE --output DIR``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from capsnmt.corpora.engine import Options, prepare
from capsnmt.corpora.errors import PreparationError
from capsnmt.corpora.progress import say
from capsnmt.corpora.recipe import load_recipe, recipe_names


def _workers(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number of processes, 1 or more")
    return int(text)


def _address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(
            f"{text}: give the http:// or https:// address of a folder (a folder here: --local)"
        )
    return text


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m capsnmt.corpora",
        description="Prepare a parallel corpus, down to a fairseq data-bin in OUTPUT/bin. "
        "The same command again resumes, and redoes only what is missing or has changed.",
    )
    parser.add_argument("recipe", help=f"{', '.join(recipe_names())}, or the path of a .yaml")
    parser.add_argument("--output", type=Path, required=True, help="folder for everything made")
    parser.add_argument("--pair", help="SOURCE-TARGET, where the recipe offers several")
    parser.add_argument(
        "--corpora", help="NAME,NAME...: which of the recipe's training corpora (default: all)"
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
        help="folder with the source files, not to fetch them",
    )
    parser.add_argument(
        "--mirror",
        action="append",
        default=[],
        type=_address,
        metavar="URL",
        help="folder on a server that is asked first for every source file; may be repeated",
    )
    parser.add_argument("--offline", action="store_true", help="never touch the network")
    parser.add_argument(
        "--workers", type=_workers, default=os.cpu_count() or 1, help="processes (default: all)"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = build_parser().parse_args(given)
    command = shlex.join(["python", "-m", "capsnmt.corpora", *given])
    try:
        recipe = load_recipe(options.recipe, options.pair, options.corpora)
        if options.deduplicate:
            recipe = replace(recipe, cleaning=replace(recipe.cleaning, deduplicate=True))
        if options.local is not None and not options.local.is_dir():
            raise PreparationError(f"--local {options.local}: no such folder")
        if options.mirror and (options.local is not None or options.offline):
            raise PreparationError(
                f"--mirror {options.mirror[0]}: nothing is fetched with --local or --offline: "
                f"leave one out"
            )
        how = Options(options.local, options.offline, options.mirror, options.workers, command)
        folder = prepare(recipe, options.output, how)
    except PreparationError as error:
        print(f"data_prep: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"data_prep: {error.filename or options.output}: {error.strerror or error}",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("data_prep: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    say(f"data-bin: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
