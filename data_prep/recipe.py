"""Recipes: what a corpus is made of and how it is prepared, in YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import yaml

from data_prep.catalogues import Catalogues
from data_prep.cleaning import Cleaning
from data_prep.errors import PreparationError
from data_prep.parallel_files import ParallelFiles
from data_prep.text import TOKENISERS

FOLDER = Path(__file__).parent / "recipes"
PAIR = re.compile("[a-z]{2,3}-[a-z]{2,3}")
YAML_TYPES: dict[str, Any] = {
    "Mapping": Mapping,
    "tuple": list,
    "str": str,
    "int": int,
    "float": (int, float),
}
YAML_NAMES = {
    "Mapping": "a mapping",
    "tuple": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
}
T = TypeVar("T")


class Corpus(Protocol):
    """What the engine asks of a kind of corpus."""

    splits: Mapping[str, Any]
    tools: ClassVar[tuple[str, ...]]

    def check(self, language: str, where: str) -> None:
        """Raise a PreparationError that starts with `where` if `language` cannot be had."""

    def settings(self) -> dict[str, Any]:
        """Return what, beside the sources' contents, decides the pairs."""

    def fetch(self, folder: Path, local: Path | None, offline: bool) -> dict[str, Path]:
        """Return the files of the corpus by name, fetched to `folder` unless in `local`."""

    def pairs(
        self, sources: Mapping[str, Path], source: str, target: str
    ) -> tuple[Mapping[str, Iterable[tuple[str, str]]], Mapping[str, Any]]:
        """Return each split's pairs of raw lines, and notes for the manifest."""


CORPORA: dict[str, type] = {"parallel_files": ParallelFiles, "catalogues": Catalogues}


@dataclass(frozen=True)
class Recipe:
    """A corpus and its preparation.

    Attributes:
        name: the file's name, without ``.yaml``.
        description: one line for people.
        pair: SOURCE-TARGET, ISO 639-1.
        corpus: where the raw pairs come from.
        tokenisers: language -> key of `TOKENISERS`.
        bpe_merges: operations of the joint BPE.
        cleaning: limits for training pairs.
    """

    name: str
    description: str
    pair: str
    corpus: Corpus
    tokenisers: Mapping[str, str]
    bpe_merges: int
    cleaning: Cleaning = field(default_factory=Cleaning)

    @property
    def source(self) -> str:
        """Return the source language."""
        return self.pair.split("-")[0]

    @property
    def target(self) -> str:
        """Return the target language."""
        return self.pair.split("-")[1]

    @property
    def splits(self) -> list[str]:
        """Return train, valid and the test sets, in this order."""
        tests = [split for split in self.corpus.splits if split not in {"train", "valid"}]
        return ["train", "valid", *tests]


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with the project."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def _build(kind: type[T], values: Any, where: str) -> T:
    """Return the dataclass `kind` made of a YAML mapping, whose keys are checked."""
    if not isinstance(values, Mapping):
        raise PreparationError(f"{where}: a mapping is needed, not {values!r}")
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    needed = {
        name
        for name, item in known.items()
        if item.default is MISSING and item.default_factory is MISSING
    }
    unknown, missing = set(values) - set(known), needed - set(values)
    if unknown or missing:
        fault = f"unknown key {min(unknown)!r}" if unknown else f"key {min(missing)!r} is missing"
        raise PreparationError(f"{where}: {fault}; the keys are {', '.join(known)}")
    for name, value in values.items():
        # The annotations are text, since nothing here evaluates them.
        wanted = str(known[name].type).split("[")[0]
        if wanted in YAML_TYPES and not isinstance(value, YAML_TYPES[wanted]):
            raise PreparationError(f"{where}: {name} is {value!r}: {YAML_NAMES[wanted]} is needed")
    return kind(**values)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        merged[key] = _merged(base[key], value) if nested else value
    return merged


def _choose_pair(values: dict[str, Any], pair: str | None, where: str) -> dict[str, Any]:
    """Apply what the recipe says under ``pairs`` of the chosen one; the first is the default."""
    pairs = values.pop("pairs", {values.get("pair"): {}})
    chosen = pair or next(iter(pairs))
    if chosen not in pairs:
        raise PreparationError(f"--pair {chosen}: {where} has {', '.join(map(str, pairs))}")
    return _merged(values, {**pairs[chosen], "pair": chosen})


def load_recipe(name: str, pair: str | None = None) -> Recipe:
    """Return the recipe `name`, or the one in the file `name` if it ends in ``.yaml``.

    Args:
        name: one of `recipe_names()`, or a path.
        pair: SOURCE-TARGET, for recipes that offer several; None for the recipe's first.

    Raises:
        PreparationError: no such recipe or pair, or the YAML says something a recipe cannot.
    """
    path = FOLDER / f"{name}.yaml" if name in recipe_names() else Path(name)
    if path.suffix != ".yaml" or not path.is_file():
        raise PreparationError(
            f"recipe {name!r} is unknown: use {', '.join(recipe_names())}, or the path of a .yaml"
        )
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PreparationError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise PreparationError(f"{path}: a mapping is needed, not {values!r}")
    values = _choose_pair(values, pair, str(path))
    corpus = dict(values.get("corpus") or {})
    kind = corpus.pop("kind", None)
    if kind not in CORPORA:
        raise PreparationError(f"{path}: corpus kind {kind!r} is unknown: use {', '.join(CORPORA)}")
    values["corpus"] = _build(CORPORA[kind], corpus, f"{path}, corpus")
    values["cleaning"] = _build(Cleaning, values.get("cleaning", {}), f"{path}, cleaning")
    recipe = _build(Recipe, {**values, "name": path.stem}, str(path))
    _check(recipe, str(path))
    return recipe


def _check(recipe: Recipe, where: str) -> None:
    if not PAIR.fullmatch(recipe.pair):
        raise PreparationError(f"{where}: pair {recipe.pair!r}: give SOURCE-TARGET, e.g. en-de")
    if any(not split.isidentifier() for split in recipe.corpus.splits):
        raise PreparationError(
            f"{where}: splits {', '.join(recipe.corpus.splits)}: letters, digits and _ only"
        )
    for language in recipe.pair.split("-"):
        recipe.corpus.check(language, where)
    splits = list(recipe.corpus.splits)
    if not {"train", "valid"} < set(splits):
        raise PreparationError(
            f"{where}: splits {', '.join(splits)}: train, valid and at least one test are needed"
        )
    if recipe.bpe_merges < 1:
        raise PreparationError(f"{where}: bpe_merges {recipe.bpe_merges!r}: give a positive number")
    for language in recipe.pair.split("-"):
        tokeniser = recipe.tokenisers.get(language)
        if tokeniser not in TOKENISERS:
            raise PreparationError(
                f"{where}: tokeniser {tokeniser!r} of {language}: use {', '.join(TOKENISERS)}"
            )
