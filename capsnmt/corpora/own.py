"""The user's own parallel text as a recipe: ``capsnmt-prepare --train a.en a.de``."""

import os
import re
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from sacremoses.corpus import NonbreakingPrefixes

from capsnmt.cli import ConfigurationError, say
from capsnmt.corpora.archives import Text
from capsnmt.corpora.raw import read_pairs
from capsnmt.corpora.recipe import NOT_TESTS, Piece, Recipe, Segmentation, Source, sides_of
from capsnmt.evaluation.text import base_language
from capsnmt.forms import MARKED, read_texts
from capsnmt.lines import read_lines

# D: merges for corpora of fewer pairs than this; little text has no use for rare subwords. They are
# those of published recipes: 10,000 for Multi30k (29,000 pairs), 32,000 for WMT's millions.
MERGES = ((5_000, 1_000), (20_000, 4_000), (500_000, 10_000), (2_000_000, 16_000))
MOST_MERGES = 32_000
# What is held out: one pair in SHARE, at most MOST, of at least FEWEST pairs.
SHARE, MOST, FEWEST = 20, 2_000, 20
TSV = (".tsv", ".tsv.gz")
TALKS = "train.tags."  # how IWSLT names its training text, which has titles and addresses of talks
LANGUAGE = re.compile("[a-z]{2,3}")


def vocabulary_size(pairs: int) -> int:
    """Return the merge operations for a corpus of so many training pairs.

    >>> [vocabulary_size(pairs) for pairs in (4_999, 29_000, 4_500_000)]
    [1000, 10000, 32000]
    """
    return next((merges for limit, merges in MERGES if pairs < limit), MOST_MERGES)


def language_of(name: str) -> str:
    """Return the language that a file is named after: its last suffix before ``.gz`` or its kind.

    >>> [*map(language_of, ("a/news.en-de.de.gz", "news.de.sgm", "news.de.txt", "news.txt"))]
    ['de', 'de', 'de', '']
    """
    return Path(MARKED.sub("", name.removesuffix(".gz")).removesuffix(".txt")).suffix[1:]


def own_recipe(
    given: Mapping[str, Sequence[str]], pair: Optional[str] = None, vocabulary: Optional[int] = None
) -> Recipe:
    """Read the user's files, to check and count them, and return their recipe.

    ``given`` has the files of each split, ``train`` first: of the two languages, tables of two
    columns, or WMT's XML, which has both. A test set may have several references. A validation or
    test set that is missing is drawn from the training set. Without ``pair``, the languages are the
    suffixes of the training files, in their order.
    """
    languages = _languages(given["train"], pair)
    splits: Dict[str, Tuple[Piece, ...]] = {}
    pairs: Dict[str, int] = {}
    files: List[str] = []
    for name, words in given.items():
        pieces = splits[name] = _pieces(name, words, languages)
        sides = sides_of(pieces, languages)
        own = [piece.source(side) for piece in pieces for side in sides]
        texts = {path: {path: [Text(Path(path), path)]} for path in own}
        pairs[name] = sum(1 for _ in read_pairs(pieces, sides, texts))
        if not pairs[name]:
            raise ConfigurationError(
                f"--{name} {' '.join(words)} is empty; give one sentence per line, or leave it out"
            )
        files += own
    tokenisers = {
        side: "characters" if base_language(side) == "zh" else "moses" for side in languages
    }
    held_out = _held_out(pairs)
    pairs.update(held_out, train=pairs["train"] - sum(held_out.values()))
    recipe = Recipe(
        name="own",
        description=f"text of {', '.join(Path(name).name for name in given['train'])}",
        pair="-".join(languages),
        files=dict.fromkeys(files, Source()),
        splits=splits,
        held_out=held_out,
        tokenisers=tokenisers,
        segmentation=Segmentation(size=vocabulary or vocabulary_size(pairs["train"])),
    )
    drawn = f" ({' and '.join(held_out)} drawn from --train)" if held_out else ""
    say(f"pairs: {', '.join(f'{name} {pairs[name]:,}' for name in recipe.subsets)}{drawn}")
    size = recipe.segmentation.size
    say(f"subwords: {size:,} merge operations of BPE, one vocabulary for both languages")
    known = NonbreakingPrefixes().available_langs
    for side in sorted(languages):
        if tokenisers[side] == "moses" and base_language(side) not in known:
            say(f"{side}: Moses has no rules for it; words are what spaces separate, as in English")
    return recipe


def _languages(files: Sequence[str], pair: Optional[str]) -> Tuple[str, str]:
    found = pair.split("-") if pair else list(dict.fromkeys(map(language_of, files)))
    if len(set(found)) != 2 or not all(map(LANGUAGE.fullmatch, found)):
        names = f"--train {' '.join(files)}: the names end in {', '.join(found) or 'no language'}"
        raise ConfigurationError(
            f"{f'--pair {pair}' if pair else names}; give two languages by their codes of ISO 639, "
            f"as suffixes of the files, *.en *.de, or by --pair, as en-de"
        )
    return found[0], found[1]


def _pieces(split: str, files: Sequence[str], languages: Tuple[str, str]) -> Tuple[Piece, ...]:
    """Return the pieces of a split: tables, files paired by their suffixes, or two files.

    **D**: one file of the source and several of the target are a test set with its references.
    """
    flag, is_test = f"--{split}", split not in NOT_TESTS
    given = f"{flag} {' '.join(files)}"
    paths = [_absolute(flag, name) for name in files]
    if all(name.endswith(TSV) for name in files):
        return tuple(_table(f"{flag} {name}", path, languages) for name, path in zip(files, paths))
    marked = {bool(MARKED.search(path)) for path in paths}
    if len(marked) > 1:
        raise ConfigurationError(
            f"{given}: some are markup and some are not; give both sides alike"
        )
    codes = [*map(language_of, paths)]
    named = _sides_of(codes, languages)
    sides = [[path for path, name in zip(paths, named) if name == side] for side in languages]
    if sides == [[], []] and (len(paths) == 2 or is_test):
        sides = [paths[:1], paths[1:]]
        if all(len(code) == 2 for code in codes):  # as those of languages
            taken = ", ".join(map("{} is taken for {}".format, files, languages))
            say(f"warning: {given}: {taken}; give other files or --pair if that is wrong")
    counts, rows = [*map(len, sides)], [[*both] for both in zip(*sides)]
    stems = [[path.rpartition(f".{language_of(path)}")[0] for path in each] for each in sides]
    misplaced = (one != other and one in stems[1] for one, other in zip(*stems))
    if counts[0] == counts[1] and any(misplaced):
        raise ConfigurationError(
            f"{given}: the names of both sides are in another order, and files are paired in their "
            f"order; give both sides in one"
        )
    if marked == {True} and len(paths) == 1:  # it has both sides
        rows = [paths]
    elif is_test and counts[0] == 1 < counts[1]:
        rows = [sides[0] + sides[1]]
    if sum(map(len, rows)) != len(paths):
        several = ", one source and its references" if is_test else ""
        raise ConfigurationError(
            f"{given}: {counts[0]} of {len(paths)} files end in .{languages[0]} and {counts[1]} in "
            f".{languages[1]}; give as many of each{several}, or tables that end in .tsv"
        )
    pieces = tuple(_piece(flag, row, languages, marked == {True}) for row in rows)
    most = max(len(piece.file) for piece in pieces) - 1
    if most > 1 and (len(pieces) > 1 or not is_test):
        raise ConfigurationError(
            f"{given}: {most} references, which only a --test of one source may have; give files "
            f"of one text"
        )
    return pieces


def _sides_of(codes: Sequence[str], languages: Tuple[str, str]) -> List[Optional[str]]:
    """Return the language of the pair that each code stands for: of pt_BR and por that is pt."""
    known = {**{base_language(side): side for side in languages}, **{it: it for it in languages}}
    return [known.get(code) or known.get(base_language(code)) for code in codes]


def _table(what: str, path: str, languages: Tuple[str, str]) -> Piece:
    """Return the piece of a table of the source and the target.

    **D**: europarl.de-en.tsv has German first, as all published tables, whatever the pair is.

    Raise if it has more than two columns: one of them could be numbers, or half a text.
    """
    parts = _sides_of(re.findall(r"[^\W_]+", Path(path).name), languages)
    named = list(dict.fromkeys(filter(None, parts)))
    sides = named if len(named) == 2 else languages
    if named == [*reversed(languages)]:
        say(f"{what}: its columns are {' and '.join(named)}, by its name")
    for number, line in enumerate(read_lines(Path(path)), 1):
        if (tabs := line.count("\t")) > 1:
            raise ConfigurationError(
                f"{what}, line {number}: {tabs + 1} columns; give a table of two, "
                f"source and target; cut -f N,M keeps them"
            )
    columns = {side: number for number, side in enumerate(sides, 1)}
    return Piece(file=path, format="tsv", columns=columns)


def _piece(flag: str, paths: Sequence[str], languages: Tuple[str, str], marked: bool) -> Piece:
    """Return the piece of a source and its references, or of one file that has all of them."""
    counts = [_texts(flag, path, len(paths) == 1) if marked else 1 for path in paths]
    found = [(path, text + 1) for path, count in zip(paths, counts) for text in range(count)]
    target = languages[1]
    names = [*languages, *(f"{target}.{number}" for number in range(1, len(found) - 1))]
    file = {side: path for side, (path, _) in zip(names, found)}
    if len(found) > len(paths):
        columns = {side: text for side, (_, text) in zip(names, found)}
        return Piece(file=file, format="wmt-xml", columns=columns)
    talks = all(Path(path).name.startswith(TALKS) for path in paths)
    return Piece(file=file, format="sgm" if marked else "iwslt-tags" if talks else "plain")


def _texts(flag: str, path: str, alone: bool) -> int:
    """Return how many texts a file of markup has: source and references, or those of one side."""
    source, references = read_texts(read_lines(Path(path)), path)
    if bool(source and references) != alone:
        has = "not both a source and references" if alone else "both a source and references"
        fix = "give the files of both sides" if alone else "give it alone"
        raise ConfigurationError(f"{flag} {path} has {has}; {fix}")
    return max(1, bool(source) + len(references))


def _absolute(flag: str, name: str) -> str:
    """Return the path of a file, the same by whatever links and ``..`` its folder is named."""
    path = Path(name)
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"{flag} {name} is no regular file; write its text to one")
    return os.path.join(os.path.realpath(path.parent), path.name)


def _held_out(pairs: Mapping[str, int]) -> Dict[str, int]:
    """Return the number of training pairs to draw for each split that is missing."""
    missing: List[str] = [] if "valid" in pairs else ["valid"]
    if not set(pairs) - set(NOT_TESTS):
        missing.append("test")
    if missing and pairs["train"] < FEWEST:
        raise ConfigurationError(
            f"--train: {pairs['train']:,} pairs are too few to draw {' and '.join(missing)} from; "
            f"give {' and '.join(f'--{name}' for name in missing)}, or at least {FEWEST} pairs"
        )
    return dict.fromkeys(missing, max(1, min(MOST, pairs["train"] // SHARE)))
