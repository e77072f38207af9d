"""Recipes: YAML files that define a corpus and its preparation."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, Optional, Tuple, Union

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
# where text comes from and what is said about it
NOT_DECISIVE = ("files", "mirrors", "lines", "description")


class Source(records.Record, frozen=True, kw_only=True, omit_defaults=True):
    """A published file.

    Attributes:
        urls: its URLs, tried in this order; an entry that is a list gives the parts of the file.
        checksum: its SHA-256, or ``md5:`` and its MD5 if no SHA-256 is published. If it is empty,
            what arrives must be readable to its end.
        repacked: URLs of archives with the same text, tried last; they have no checksum.
    """

    urls: Tuple[Union[Url, Tuple[Url, ...]], ...] = ()
    checksum: Checksum = ""
    repacked: Tuple[Url, ...] = ()


class Piece(records.Record, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a split, in two files or in members of archives.

    Attributes:
        file: name of the file, in which ``{language}`` is replaced by each language, or language
            -> name.
        members: pattern of the members of an archive, or language -> pattern; see
            `capsnmt.corpora.archives.matches`. Several members are read in the order of their
            names.
        format: a key of `capsnmt.corpora.formats.FORMATS`.
        encoding: the encoding of the text.
        columns: language -> column of a ``tsv``, counted from 1.
        name: its name for ``--corpora``.
    """

    file: Union[str, Dict[str, str]]
    members: Union[str, Dict[str, str]] = ""
    format: Format = "plain"
    encoding: str = "utf-8"
    columns: Dict[str, Positive] = field(default_factory=dict)
    name: str = ""

    def source(self, language: str) -> str:
        """Return the name of the file with the side in ``language``."""
        if isinstance(self.file, dict):
            return self.file[language]
        return self.file.replace("{language}", language)

    def pattern(self, language: str) -> str:
        """Return the pattern of the members with the side in ``language``.

        An archive in place of a plain file has a member with the name of that file.
        """
        if not self.members:
            return self.source(language)
        pattern = self.members if isinstance(self.members, str) else self.members[language]
        return pattern.replace("{language}", language)


class Segmentation(records.Record, frozen=True, kw_only=True):
    """How words are split into subwords.

    Attributes:
        size: merge operations of ``bpe``; pieces of ``sentencepiece``.
        method: subword-nmt's BPE, or that of sentencepiece.
        joint: one model and one dictionary for both languages, or one for each.
    """

    size: Positive
    method: Literal["bpe", "sentencepiece"] = "bpe"
    joint: bool = True

    def model(self, language: str) -> str:
        """Return the file name of the model for a language."""
        name = {"bpe": "codes", "sentencepiece": "sentencepiece.model"}[self.method]
        return name + ("" if self.joint else f".{language}")


class Cleaning(records.Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The limits of Moses' ``clean-corpus-n.perl``, and two more; for training data only.

    Attributes:
        max_length: maximal number of tokens on either side.
        max_ratio: maximal ratio of the two sides' numbers of tokens.
        max_subwords: maximal number of subwords on either side; 0 for no limit.
        deduplicate: whether pairs that repeat an earlier one, as tokenised, are dropped.
    """

    max_length: Positive = 250
    max_ratio: Annotated[float, Meta(ge=1)] = 9.0
    max_subwords: Whole = 0
    deduplicate: bool = False


class Recipe(records.Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A corpus and its preparation.

    Attributes:
        pair: SOURCE-TARGET, ISO 639-1.
        files: name -> source; a text is a checksum without URLs.
        splits: split -> its pieces; a text is one plain file.
        tokenisers: language -> one of `TOKENISERS`.
        segmentation: how words are split into subwords.
        cleaning: limits for training pairs.
        name: by default the file's name, without ``.yaml``.
        description: one line for the user.
        mirrors: URLs of folders that have the files by their names.
        lines: split -> number of lines in the papers; any other number causes a warning.
        codes: the file with the merges of subword-nmt that are published with the text; empty if
            they are to be learned.
        held_out: split -> number of pairs that are drawn from the training set for it.
        lowercase: whether all text is lower-cased, also that to score against.
    """

    pair: Pair
    files: Dict[FileName, Union[Checksum, Source]]
    splits: Dict[SplitName, Union[str, Tuple[Piece, ...]]]
    tokenisers: Dict[str, Tokeniser]
    segmentation: Segmentation
    cleaning: Cleaning = Cleaning()
    name: str = ""
    description: str = ""
    mirrors: Tuple[Url, ...] = ()
    lines: Dict[str, Whole] = field(default_factory=dict)
    codes: str = ""
    held_out: Dict[SplitName, Positive] = field(default_factory=dict)
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

    def decisive(self) -> Dict[str, Any]:
        """Return what decides what is made of the sources: what makes it another recipe."""
        content = records.plain(self)
        return {key: content[key] for key in content if key not in NOT_DECISIVE}

    def source(self, name: str) -> Source:
        """Return where a file of the recipe comes from."""
        found = self.files[name]
        return Source(checksum=found) if isinstance(found, str) else found

    def pieces(self, split: str) -> Tuple[Piece, ...]:
        """Return the pieces of a split that is not held out."""
        found = self.splits[split]
        return (Piece(file=found),) if isinstance(found, str) else found

    def needed(self) -> Dict[str, List[str]]:
        """Return the files that the splits need -> the patterns of the members of each."""
        needed: Dict[str, List[str]] = {self.codes: [self.codes]} if self.codes else {}
        for split in self.splits:
            for piece in self.pieces(split):
                for language in self.languages:
                    patterns = needed.setdefault(piece.source(language), [])
                    patterns.append(piece.pattern(language))
        return {name: list(dict.fromkeys(patterns)) for name, patterns in needed.items()}

    def training_corpora(self) -> List[str]:
        """Return the names of the training corpora."""
        return list(dict.fromkeys(each.name for each in self.pieces("train") if each.name))

    def choose(self, names: List[str]) -> Recipe:
        """Return the recipe with only some of its training corpora."""
        known = self.training_corpora()
        for name in names:
            if name not in known:
                raise ConfigurationError(
                    f"--corpora {name}: the recipe's training corpora are "
                    f"{', '.join(known) or 'one, without a name'}"
                )
        kept = tuple(piece for piece in self.pieces("train") if piece.name in names)
        return replace(self, splits={**self.splits, "train": kept})


def load_recipe(name: str, pair: Optional[str] = None) -> Recipe:
    """Load a recipe.

    Args:
        name: the name of a recipe of the project, or the path of a ``.yaml``.
        pair: SOURCE-TARGET as the user expects it.
    """
    known = bundled_names("recipes")
    path = bundled_folder("recipes") / f"{name}.yaml" if name in known else Path(name)
    if path.suffix != ".yaml" or not path.is_file():
        raise ConfigurationError(
            f"recipe {name!r} is unknown: use {', '.join(known)}, the path of a .yaml, or --train "
            f"with files of your own"
        )
    recipe = records.read(path, Recipe)
    _check(recipe, path)
    if pair not in (None, recipe.pair):
        raise ConfigurationError(f"--pair {pair}: {path} is of {recipe.pair}")
    return replace(recipe, name=recipe.name or path.stem)


def _check(recipe: Recipe, path: Path) -> None:
    """Raise unless the parts of a recipe fit together."""
    splits = {*recipe.splits, *recipe.held_out}
    if not {*NOT_TESTS} < splits or "train" not in recipe.splits:
        raise ConfigurationError(
            f"{path}: splits {', '.join(recipe.splits)}: train, valid and at least one test are "
            f"needed"
        )
    for name in {*recipe.splits} & {*recipe.held_out}:
        raise ConfigurationError(f"{path}: held-out.{name}: splits has {name}, too: drop one")
    if recipe.codes and not (recipe.segmentation.method == "bpe" and recipe.segmentation.joint):
        raise ConfigurationError(
            f"{path}: codes {recipe.codes}: are of one BPE for both languages: set "
            f"segmentation.method bpe and segmentation.joint true"
        )
    needed: Dict[str, object] = {"tokenisers": recipe.tokenisers}
    for split in recipe.splits:
        for number, piece in enumerate(recipe.pieces(split)):
            where = f"splits.{split}.{number}"
            needed[f"{where}.file"], needed[f"{where}.members"] = piece.file, piece.members
            if piece.format == "tsv":
                needed[f"{where}.columns"] = piece.columns
            try:
                codecs.lookup(piece.encoding)
            except LookupError:
                raise ConfigurationError(
                    f"{path}: {where}.encoding: {piece.encoding!r} is unknown to Python"
                ) from None
    for key, value in needed.items():
        for language in recipe.languages:
            if isinstance(value, dict) and language not in value:
                raise ConfigurationError(f"{path}: {key}: none for {language}: give it, too")
    for name in recipe.needed():
        if name not in recipe.files:
            raise ConfigurationError(f"{path}: no file {name}: add it to files, or correct splits")
