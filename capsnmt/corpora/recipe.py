"""Recipes: what a corpus is made of and how it is prepared, in YAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import yaml

from capsnmt import resources
from capsnmt.corpora.blocks import Part
from capsnmt.corpora.catalogues import Catalogues
from capsnmt.corpora.cleaning import Cleaning
from capsnmt.corpora.published import Published
from capsnmt.corpora.schema import build
from capsnmt.corpora.segmentation import Segmentation
from capsnmt.corpora.sources import Store
from capsnmt.corpora.text import TOKENISERS
from capsnmt.errors import ConfigurationError

PAIR = re.compile("[a-z]{2,3}-[a-z]{2,3}")


class Corpus(Protocol):
    """What the engine asks of a kind of corpus."""

    tools: ClassVar[tuple[str, ...]]

    @property
    def splits(self) -> Mapping[str, Any]:
        """Return the splits, by name."""

    @property
    def lines(self) -> Mapping[str, int]:
        """Return how many lines the papers' splits have, where that is known."""

    def check(self, language: str, where: str) -> None:
        """Raise a ConfigurationError that starts with `where` if `language` cannot be had."""

    def settings(self) -> dict[str, Any]:
        """Return what, beside the sources' contents, decides the pairs."""

    def fetch(self, store: Store, languages: tuple[str, str]) -> dict[str, Path]:
        """Return the files of the corpus by name, fetched unless they are in the store."""

    def members(self, name: str, languages: tuple[str, str]) -> list[str]:
        """Return what to unpack of the file `name` if it is an archive; nothing: it is not."""

    def warning(self) -> str:
        """Return what the user must know before training on this corpus; mostly nothing."""

    def parts(
        self, sources: Mapping[str, Path], source: str, target: str, workers: int
    ) -> tuple[Mapping[str, Iterable[Part]], Mapping[str, Any]]:
        """Return each split's pairs of raw lines, and notes for the manifest."""


CORPORA: dict[str, Callable[[Any, str], Any]] = {
    "published": Published.parse,
    "catalogues": lambda values, where: build(Catalogues, values, where),
}


@dataclass(frozen=True)
class Recipe:
    """A corpus and its preparation.

    Attributes:
        name: the file's name, without ``.yaml``.
        description: one line for people.
        pair: SOURCE-TARGET, ISO 639-1.
        corpus: where the raw pairs come from.
        tokenisers: language -> key of `TOKENISERS`.
        segmentation: how words become subwords.
        cleaning: limits for training pairs.
    """

    name: str
    description: str
    pair: str
    corpus: Corpus
    tokenisers: Mapping[str, str]
    segmentation: Segmentation
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
    def languages(self) -> tuple[str, str]:
        """Return source and target."""
        return self.source, self.target

    @property
    def splits(self) -> list[str]:
        """Return train, valid and the test sets, in this order."""
        tests = [split for split in self.corpus.splits if split not in {"train", "valid"}]
        return ["train", "valid", *tests]


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
        raise ConfigurationError(f"--pair {chosen}: {where} has {', '.join(map(str, pairs))}")
    return _merged(values, {**pairs[chosen], "pair": chosen})


def load_recipe(name: str, pair: str | None = None, corpora: str | None = None) -> Recipe:
    """Return the recipe `name`, or the one in the file `name` if it ends in ``.yaml``.

    Args:
        name: the name of a recipe of the project, or a path.
        pair: SOURCE-TARGET, for recipes that offer several; None for the recipe's first.
        corpora: names of the training corpora to use, separated by commas; None for all.

    Raises:
        ConfigurationError: no such recipe, pair or corpus, or the YAML says what a recipe cannot.
    """
    path = (
        resources.folder("recipes") / f"{name}.yaml"
        if name in resources.names("recipes")
        else Path(name)
    )
    if path.suffix != ".yaml" or not path.is_file():
        raise ConfigurationError(
            f"recipe {name!r} is unknown: use {', '.join(resources.names('recipes'))}, or the "
            f"path of a .yaml"
        )
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path}: a mapping is needed, not {values!r}")
    values = _choose_pair(values, pair, str(path))
    corpus = dict(values.get("corpus") or {})
    kind = corpus.pop("kind", None)
    if kind not in CORPORA:
        raise ConfigurationError(
            f"{path}: corpus kind {kind!r} is unknown: use {', '.join(CORPORA)}"
        )
    values["corpus"] = CORPORA[kind](corpus, f"{path}, corpus")
    values["cleaning"] = build(Cleaning, values.get("cleaning", {}), f"{path}, cleaning")
    if "segmentation" in values:
        said = values["segmentation"]
        values["segmentation"] = build(Segmentation, said, f"{path}, segmentation")
    recipe = build(Recipe, {**values, "name": path.stem}, str(path))
    _check(recipe, str(path))
    return recipe if corpora is None else _choose_corpora(recipe, corpora.split(","))


def _choose_corpora(recipe: Recipe, names: list[str]) -> Recipe:
    if not isinstance(recipe.corpus, Published):
        raise ConfigurationError(
            f"--corpora {','.join(names)}: recipe {recipe.name} has one training corpus only: "
            f"leave it out"
        )
    return replace(recipe, corpus=recipe.corpus.choose(names))


def _check(recipe: Recipe, where: str) -> None:
    if not PAIR.fullmatch(recipe.pair):
        raise ConfigurationError(f"{where}: pair {recipe.pair!r}: give SOURCE-TARGET, e.g. en-de")
    if any(not split.isidentifier() for split in recipe.corpus.splits):
        raise ConfigurationError(
            f"{where}: splits {', '.join(recipe.corpus.splits)}: letters, digits and _ only"
        )
    for language in recipe.pair.split("-"):
        recipe.corpus.check(language, where)
    splits = list(recipe.corpus.splits)
    if not {"train", "valid"} < set(splits):
        raise ConfigurationError(
            f"{where}: splits {', '.join(splits)}: train, valid and at least one test are needed"
        )
    recipe.segmentation.check(where)
    for language in recipe.pair.split("-"):
        tokeniser = recipe.tokenisers.get(language)
        if tokeniser not in TOKENISERS:
            raise ConfigurationError(
                f"{where}: tokeniser {tokeniser!r} of {language}: use {', '.join(TOKENISERS)}"
            )
