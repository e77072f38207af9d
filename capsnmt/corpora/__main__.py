"""The command ``capsnmt-prepare``: from a recipe or from text of the user to a data-bin."""

import functools
import os
import re
import shlex
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence

from msgspec.structs import replace

from capsnmt import cli
from capsnmt.files import bundled_names
from capsnmt.machine import CORES

if TYPE_CHECKING:
    from capsnmt.corpora.prepare import Preparation

OF_OWN = ("train", "valid", "test", "vocabulary")
OF_RECIPES = ("corpora", "local", "mirrors")


@functools.partial(cli.command, interrupted=cli.RESUMES)
def main(argv: List[str]) -> None:
    """Run ``capsnmt-prepare`` and return the exit status."""
    options = build_parser().parse_args(argv)
    found = preparation(options, argv)
    if options.dry_run:
        print("\n".join(found.script()))
    else:
        cli.say(f"data-bin: {found.run()}")


def build_parser() -> cli.OneLineParser:
    """Return the parser of the command line."""
    parser = cli.OneLineParser(
        prog="capsnmt-prepare",
        description="Prepare a parallel corpus, down to a fairseq data-bin in OUTPUT/bin. "
        "The same command resumes: it repeats only steps that are missing or have changed.",
    )
    add = parser.add_argument
    names = ", ".join(bundled_names("recipes"))
    add("recipe", nargs="?", help=f"{names}, or the path of a .yaml")
    add("--output", type=Path, required=True, help="folder for all output")
    add("--pair", help="SOURCE-TARGET, where the names of files do not say it")
    repeated = "drop repeated training pairs, compared by their tokens"
    add("--deduplicate", action="store_true", help=repeated)
    add("--lowercase", action="store_true", help="lower-case all text")
    add("--workers", type=cli.positive, default=CORES, help="processes (default: one per core)")
    add("--dry-run", action="store_true", help="list the steps and do nothing")
    add = parser.add_argument_group("text of your own, in place of a recipe").add_argument
    pairs = "training pairs: plain or .gz, paired by suffix, as a.en a.de; or .tsv tables"
    add("--train", nargs="+", metavar="FILE", help=pairs)
    drawn = "pairs (default: drawn from --train)"
    add("--valid", nargs="+", metavar="FILE", help=f"validation {drawn}")
    tests = f"test {drawn}, or one source and its references; several sets are repeated with names"
    add("--test", nargs="+", action="append", default=[], metavar="[NAME=]FILE", help=tests)
    merges = "merge operations of BPE (default: by the number of pairs)"
    add("--vocabulary", type=cli.positive, metavar="N", help=merges)
    published = parser.add_argument_group("recipes")
    corpora = "NAME,NAME...: training corpora of the recipe to use (default: all)"
    published.add_argument("--corpora", help=corpora)
    files = published.add_mutually_exclusive_group()
    folder = "folder of the source files; nothing is fetched"
    files.add_argument("--local", type=Path, metavar="DIR", help=folder)
    cli.add_mirrors(files)
    return parser


def preparation(options: Namespace, given: Sequence[str]) -> "Preparation":
    """Return the preparation of a command line, which is recorded as it was given."""
    if not (options.recipe or options.train):
        raise cli.ConfigurationError("give a recipe, or --train with files of your own")
    given_to, others = (options.recipe, OF_OWN) if options.recipe else ("--train", OF_RECIPES)
    for name in others:
        if vars(options)[name]:
            raise cli.ConfigurationError(
                f"--{name} is not for {given_to}; leave one of the two out"
            )
    if re.search("^-|[,:]", str(options.output)):
        raise cli.ConfigurationError(
            f"--output {options.output} has a comma or colon, at which fairseq splits paths, or "
            f"starts with a dash, as a flag does; give another"
        )
    # Imported where they are needed: tokenisers and models take seconds.
    cli.require("data", "fairseq")
    from capsnmt.corpora.prepare import Preparation
    from capsnmt.corpora.prepared import PreparedData
    from capsnmt.corpora.recipe import load_recipe

    gone = options.local is not None and not options.local.is_dir()
    if gone and not PreparedData(options.output).is_complete():  # which needs no source
        raise cli.ConfigurationError(f"--local {options.local}: no such folder; check the path")
    if options.train:
        from capsnmt.corpora.own import own_recipe

        files = {"train": options.train, **_named(options.valid, options.test)}
        recipe = own_recipe(files, options.pair, options.vocabulary)
    else:
        recipe = load_recipe(options.recipe, options.pair)
        if options.corpora is not None:
            recipe = recipe.choose(options.corpora.split(","))
    if options.lowercase:
        recipe = replace(recipe, lowercase=True)
    if options.deduplicate:
        recipe = replace(recipe, cleaning=replace(recipe.cleaning, deduplicate=True))
    return Preparation(
        recipe,
        options.output,
        local=Path("/") if options.train else options.local,
        mirrors=tuple(options.mirrors),
        workers=min(options.workers, CORES),
        command=shlex.join(["python", "-m", "capsnmt.corpora", *given]),
    )


def _named(valid: Optional[List[str]], tests: List[List[str]]) -> Dict[str, List[str]]:
    """Return the files of the validation set and of each test set, by name."""
    splits = {"valid": valid} if valid else {}
    for files in tests:
        name, equals, first = files[0].partition("=")
        named = equals and not os.path.exists(files[0])
        name, files = (name, [first, *files[1:]]) if named else ("test", files)
        # the mean is over several test sets
        if name in ("train", "valid", "mean", *splits) or not name.isidentifier():
            raise cli.ConfigurationError(
                f"--test {' '.join(files)}: the name {name!r} is taken, or is not of letters, "
                f"digits and _, a letter first; give each set another, as --test NAME=FILE ..."
            )
        splits[name] = files
    return splits


if __name__ == "__main__":
    raise SystemExit(main())
