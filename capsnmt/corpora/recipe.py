"""Recipes: YAML files that define a corpus and its preparation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from capsnmt.cli import ConfigurationError, shown
from capsnmt.corpora.blocks import Part
from capsnmt.corpora.catalogues import Catalogues
from capsnmt.corpora.cleaning import Cleaning
from capsnmt.corpora.published import Published
from capsnmt.corpora.segmentation import Segmentation
from capsnmt.corpora.sources import Store
from capsnmt.corpora.text import TOKENISERS
from capsnmt.files import bundled_folder, bundled_names
from capsnmt.settings import build, read_yaml

PAIR = re.compile("[a-z]{2,3}-[a-z]{2,3}")


class Corpus(Protocol):
    """The interface of a kind of corpus."""

    tools: ClassVar[tuple[str, ...]]

    @property
    def splits(self) -> Mapping[str, Any]:
        """Return the splits, by name."""

    @property
    def lines(self) -> Mapping[str, int]:
        """Return the number of lines of each split in the papers, if known."""

    @property
    def codes(self) -> str:
        """Return the file that holds the merges of BPE; empty if they are learned."""

    def check(self, language: str, where: str) -> None:
        """Raise a ConfigurationError, starting with ``where``, if a language is missing."""

    def settings(self) -> dict[str, Any]:
        """Return everything that determines the pairs except the sources' contents."""

    def fetch(self, store: Store, languages: tuple[str, str]) -> dict[str, Path]:
        """Return the files of the corpus by name; fetch those that the store lacks."""

    def members(self, name: str, languages: tuple[str, str]) -> list[str]:
        """Return the patterns of members to unpack from a file; empty if it is not an archive."""

    def warning(self) -> str:
        """Return a warning about training on this corpus; usually empty."""

    def parts(
        self, sources: Mapping[str, Path], source: str, target: str, workers: int
    ) -> tuple[Mapping[str, Iterable[Part]], Mapping[str, Any]]:
        """Return the pairs of raw lines of each split, and notes for the manifest."""


def _catalogues(values: Any, origin: str, section: str) -> Catalogues:
    return build(Catalogues, values, origin, section)


CORPORA: dict[str, Callable[[Any, str, str], Any]] = {
    "published": Published.parse,
    "catalogues": _catalogues,
}


@dataclass(frozen=True)
class Recipe:
    """A corpus and its preparation.

    Attributes:
        name: the file's name, without ``.yaml``.
        description: one line for the user.
        pair: SOURCE-TARGET, ISO 639-1.
        corpus: the source of the raw pairs.
        tokenisers: language -> key of `TOKENISERS`.
        segmentation: how words are split into subwords.
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


def load_recipe(name: str, pair: str | None = None, corpora: str | None = None) -> Recipe:
    """Load a recipe.

    Args:
        name: the name of a recipe of the project, or the path of a ``.yaml``.
        pair: SOURCE-TARGET, for recipes that offer several; None for the recipe's first.
        corpora: names of the training corpora to use, separated by commas; None for all.

    Raises:
        ConfigurationError: there is no such recipe, pair or corpus, or a setting is wrong.
    """
    known = bundled_names("recipes")
    path = bundled_folder("recipes") / f"{name}.yaml" if name in known else Path(name)
    if path.suffix != ".yaml" or not path.is_file():
        raise ConfigurationError(
            f"recipe {name!r} is unknown: use {', '.join(known)}, or the path of a .yaml"
        )
    origin = str(path)
    values = _choose_pair(read_yaml(path), pair, origin)
    corpus = values.get("corpus")
    if not isinstance(corpus, Mapping):
        raise ConfigurationError(f"{origin}: corpus: {shown(corpus)}: give a mapping")
    corpus = dict(corpus)
    kind = corpus.pop("kind", None)
    if not isinstance(kind, str) or kind not in CORPORA:
        raise ConfigurationError(
            f"{origin}: corpus.kind: {shown(kind)}: give {' or '.join(CORPORA)}"
        )
    values["corpus"] = CORPORA[kind](corpus, origin, "corpus")
    values["cleaning"] = build(Cleaning, values.get("cleaning", {}), origin, "cleaning")
    if "segmentation" in values:
        values["segmentation"] = build(Segmentation, values["segmentation"], origin, "segmentation")
    recipe = build(Recipe, values, origin, name=path.stem)
    _check(recipe, origin)
    return recipe if corpora is None else _choose_corpora(recipe, corpora.split(","))


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        merged[key] = _merged(base[key], value) if nested else value
    return merged


def _choose_pair(values: dict[str, Any], pair: str | None, origin: str) -> dict[str, Any]:
    """Apply the changes under ``pairs`` for the chosen pair; the first is the default."""
    if "pairs" in values:
        pairs = values.pop("pairs")
    elif isinstance(values.get("pair"), str):
        pairs = {values["pair"]: {}}
    else:
        raise ConfigurationError(
            f"{origin}: pair: {shown(values.get('pair'))}: give SOURCE-TARGET, e.g. en-de"
        )
    mappings = isinstance(pairs, dict) and all(isinstance(each, dict) for each in pairs.values())
    if not pairs or not mappings:
        raise ConfigurationError(f"{origin}: pairs: {shown(pairs)}: give a mapping of mappings")
    chosen = pair or next(iter(pairs))
    if chosen not in pairs:
        raise ConfigurationError(f"--pair {chosen}: {origin} has {', '.join(map(str, pairs))}")
    return _merged(values, {**pairs[chosen], "pair": chosen})


def _choose_corpora(recipe: Recipe, names: list[str]) -> Recipe:
    if not isinstance(recipe.corpus, Published):
        raise ConfigurationError(
            f"--corpora {','.join(names)}: recipe {recipe.name} has one training corpus only: "
            f"leave it out"
        )
    return replace(recipe, corpus=recipe.corpus.choose(names))


def _check(recipe: Recipe, origin: str) -> None:
    source, _, target = recipe.pair.partition("-")
    if not PAIR.fullmatch(recipe.pair) or source == target:
        raise ConfigurationError(f"{origin}: pair {recipe.pair!r}: give SOURCE-TARGET, e.g. en-de")
    if any(not split.isidentifier() for split in recipe.corpus.splits):
        raise ConfigurationError(
            f"{origin}: splits {', '.join(recipe.corpus.splits)}: letters, digits and _ only"
        )
    for language in recipe.pair.split("-"):
        recipe.corpus.check(language, origin)
    splits = list(recipe.corpus.splits)
    if not {"train", "valid"} < set(splits):
        raise ConfigurationError(
            f"{origin}: splits {', '.join(splits)}: train, valid and at least one test are needed"
        )
    segmentation = recipe.segmentation
    segmentation.check(origin)
    if recipe.corpus.codes and not (segmentation.method == "bpe" and segmentation.joint):
        raise ConfigurationError(
            f"{origin}: codes {recipe.corpus.codes}: are of one BPE for both languages: set "
            f"segmentation.method bpe and segmentation.joint true"
        )
    for language in recipe.pair.split("-"):
        tokeniser = recipe.tokenisers.get(language)
        if tokeniser not in TOKENISERS:
            raise ConfigurationError(
                f"{origin}: tokeniser {tokeniser!r} of {language}: use {', '.join(TOKENISERS)}"
            )
