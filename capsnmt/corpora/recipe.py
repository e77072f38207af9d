"""Recipes: YAML files that define a corpus and its preparation."""

import re
from collections import Counter
from itertools import permutations, product
from pathlib import Path
from typing import Annotated, Any, Dict, Iterator, List, Literal, Optional, Sequence, Tuple, Union

from msgspec import Meta, field
from msgspec.structs import replace

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.corpora.formats import FORMATS
from capsnmt.corpora.text import TOKENISERS
from capsnmt.files import bundled_folder, bundled_names

Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Url = Annotated[str, Meta(pattern="^https?://")]
Checksum = Annotated[str, Meta(pattern="^([0-9a-f]{64}|md5:[0-9a-f]{32})?$")]
FileName = Annotated[str, Meta(pattern=r"^(?!\.)[^/]+$")]
SplitName = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
Pair = Annotated[str, Meta(pattern=r"^([a-z]{2,3})-(?!\1$)[a-z]{2,3}$")]
Format = Annotated[str, Meta(pattern=f"^({'|'.join(FORMATS)})$")]
Tokeniser = Annotated[str, Meta(pattern=f"^({'|'.join(TOKENISERS)})$")]
NOT_TESTS = ("train", "valid")
IN_COLUMNS = ("tsv", "wmt-xml")
# where text comes from and what is said about it
NOT_DECISIVE = ("files", "mirrors", "lines", "description")


class Source(records.Record, frozen=True, kw_only=True, omit_defaults=True):
    """A published file: where it is, and its SHA-256, or ``md5:`` and its MD5.

    Without a checksum, what arrives must be readable to its end.
    """

    urls: Tuple[Union[Url, Tuple[Url, ...]], ...] = ()  # an entry may be the parts of the file
    checksum: Checksum = ""
    repacked: Tuple[Url, ...] = ()


class Piece(records.Record, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a split, in two files or in members of archives."""

    file: Union[str, Dict[str, str]]
    members: Union[str, Dict[str, str]] = ""
    format: Format = "plain"
    columns: Dict[str, Positive] = field(default_factory=dict)
    name: str = ""

    def source(self, language: str) -> str:
        """Return the name of the file with the side in ``language``."""
        return _of_language(self.file, language)

    def pattern(self, language: str) -> str:
        """Return the pattern of the members with the side in ``language``.

        An archive in place of a plain file has a member with the name of that file.
        """
        return _of_language(self.members or self.file, language)


def _of_language(names: Union[str, Dict[str, str]], side: str) -> str:
    if isinstance(names, str):
        return names.replace("{language}", language_of_side(side))
    return names[side]  # as it is: a path of the user's may have braces


def sides_of(pieces: Sequence[Piece], languages: Tuple[str, str]) -> Tuple[str, ...]:
    """Return the sides of some pieces: the languages, and further references that they name."""
    named = [names for each in pieces for names in (each.file, each.members, each.columns)]
    sides = dict.fromkeys(side for names in named if isinstance(names, dict) for side in names)
    more = (side for side in sides if re.fullmatch(rf"{languages[1]}\.[0-9]+", side))
    return (*languages, *more)


def language_of_side(side: str) -> str:
    """Return the language of a side of a split: of ``de``, or of a further reference ``de.1``."""
    return side.partition(".")[0]


class Segmentation(records.Record, frozen=True, kw_only=True):
    """How words are split into subwords: by subword-nmt's BPE, or by that of sentencepiece."""

    size: Positive  # merge operations of bpe; pieces of sentencepiece
    method: Literal["bpe", "sentencepiece"] = "bpe"
    joint: bool = True  # one model and one dictionary for both languages, or one for each

    def model(self, language: str) -> str:
        """Return the file name of the model for a language."""
        name = {"bpe": "codes", "sentencepiece": "sentencepiece.model"}[self.method]
        return name + ("" if self.joint else f".{language}")


class Cleaning(records.Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The limits of Moses' ``clean-corpus-n.perl``, and two more; for training data only."""

    max_length: Positive = 250  # tokens on either side
    max_ratio: Annotated[float, Meta(ge=1)] = 9.0  # of the two sides' numbers of tokens
    max_subwords: Whole = 0  # on either side; 0 for no limit
    deduplicate: bool = False  # drop pairs that repeat an earlier one, as tokenised


class Recipe(records.Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A corpus and its preparation; data_prep/README.md explains the keys."""

    pair: Pair
    files: Dict[FileName, Source]
    splits: Dict[SplitName, Tuple[Piece, ...]]
    tokenisers: Dict[str, Tokeniser]
    segmentation: Segmentation
    # of text that is published as tokens: what makes such tokens of raw text
    tokenised_by: Dict[str, Tokeniser] = field(default_factory=dict)
    cleaning: Cleaning = Cleaning()
    name: str = ""
    description: str = ""
    mirrors: Tuple[Url, ...] = ()
    lines: Dict[str, Whole] = field(default_factory=dict)
    codes: str = ""
    held_out: Dict[SplitName, Positive] = field(default_factory=dict)
    valid_every: Whole = 0  # every such training pair that cleaning keeps is for validation
    lowercase: bool = False

    @property
    def languages(self) -> Tuple[str, str]:
        """Return source and target."""
        source, target = self.pair.split("-")
        return source, target

    @property
    def test_sets(self) -> List[str]:
        """Return the names of the test sets, in order."""
        return [split for split in (*self.splits, *self.held_out) if split not in NOT_TESTS]

    @property
    def subsets(self) -> Dict[str, str]:
        """Return the fairseq subset of every split: train, valid, then test, test1, test2, ..."""
        names = ["test", *(f"test{number}" for number in range(1, len(self.test_sets)))]
        return {"train": "train", "valid": "valid", **dict(zip(self.test_sets, names))}

    def sides(self, split: str) -> Tuple[str, ...]:
        """Return source, target, and a test set's further references: ``de.1``, ``de.2``, ..."""
        return sides_of(self.splits.get(split, ()), self.languages)

    def decisive(self) -> Dict[str, Any]:
        """Return what decides what is made of the sources: what makes it another recipe."""
        content = records.plain(self)
        return {key: content[key] for key in content if key not in NOT_DECISIVE}

    def needed(self) -> Dict[str, List[str]]:
        """Return the files that the splits need -> the patterns of the members of each."""
        needed: Dict[str, List[str]] = {self.codes: [self.codes]} if self.codes else {}
        for split, pieces in self.splits.items():
            for piece, side in product(pieces, self.sides(split)):
                needed.setdefault(piece.source(side), []).append(piece.pattern(side))
        return {name: list(dict.fromkeys(patterns)) for name, patterns in needed.items()}

    def training_corpora(self) -> List[str]:
        """Return the names of the training corpora."""
        return list(dict.fromkeys(each.name for each in self.splits["train"] if each.name))

    def choose(self, names: List[str]) -> "Recipe":
        """Return the recipe with only some of its training corpora."""
        known = self.training_corpora()
        for name in names:
            if name not in known:
                choice = f"choose from {', '.join(known)}" if known else "leave it out"
                raise ConfigurationError(f"--corpora {name} is not in the recipe; {choice}")
        kept = tuple(piece for piece in self.splits["train"] if piece.name in names)
        return replace(self, splits={**self.splits, "train": kept})


def load_recipe(name: str, pair: Optional[str] = None) -> Recipe:
    """Load a recipe of the project by its name, or any by the path of its ``.yaml``.

    An expected ``pair``, SOURCE-TARGET, is checked: it may be of any two languages of the recipe.
    """
    known = bundled_names("recipes")
    path = bundled_folder("recipes") / f"{name}.yaml" if name in known else Path(name)
    if path.suffix != ".yaml" or not path.is_file():
        raise ConfigurationError(
            f"recipe {name!r} is unknown; use {', '.join(known)}, the path of a .yaml, or --train "
            f"with files of your own"
        )
    recipe = records.read(path, Recipe)
    if pair not in (None, recipe.pair, *map("-".join, permutations(recipe.tokenisers, 2))):
        raise ConfigurationError(
            f"--pair is {pair}, and {path} is of {', '.join(recipe.tokenisers)}; give two of them"
        )
    recipe = replace(recipe, pair=pair or recipe.pair)
    for problem in _problems(recipe):
        raise ConfigurationError(f"{path}: {problem}")
    return replace(recipe, name=recipe.name or path.stem)


def _problems(recipe: Recipe) -> Iterator[str]:
    taken = ["valid"] if recipe.valid_every else []
    made = Counter([*recipe.splits, *recipe.held_out, *taken])
    if "train" not in recipe.splits or not {*NOT_TESTS} < made.keys():
        yield f"splits {', '.join(recipe.splits)}: train, valid and at least one test are needed"
    for split in (split for split, count in made.items() if count > 1):
        yield f"{split} has more than one of splits, held-out and valid-every; keep one"
    if recipe.held_out and taken:
        yield "held-out and valid-every both take from the training pairs; keep one"
    of_sides: List[Tuple[str, object, Sequence[str]]] = [
        ("tokenisers", recipe.tokenisers, recipe.languages)
    ]
    for split, pieces in recipe.splits.items():
        sides = recipe.sides(split)
        if len(sides) > 2 and split in NOT_TESTS:
            yield f"splits.{split} has {sides[2]}, and only test sets have references; remove it"
        for number, piece in enumerate(pieces):
            keys = ("file", "members", *(["columns"] if piece.format in IN_COLUMNS else []))
            where = f"splits.{split}.{number}"
            of_sides += [(f"{where}.{key}", getattr(piece, key), sides) for key in keys]
    for key, value, needed in of_sides:
        for side in needed:
            if isinstance(value, dict) and side not in value:
                yield f"{key} has none for {side}; add it"
    if recipe.codes and (recipe.segmentation.method, recipe.segmentation.joint) != ("bpe", True):
        yield "codes is one file of bpe for both languages; correct segmentation, or remove codes"
    for language in recipe.tokenised_by:
        if language not in recipe.languages:
            yield f"tokenised-by.{language} is not of pair {recipe.pair}; correct or remove it"
    for name in recipe.needed():
        if name not in recipe.files:
            yield f"no file {name}; add it to files, or correct splits"
