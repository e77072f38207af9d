"""The raw text of a corpus: the sources as line-aligned files, one pair of files for each split."""

import hashlib
import random
import re
import unicodedata
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Set, Tuple

from capsnmt.cli import ConfigurationError, say
from capsnmt.corpora.archives import Text, copy_texts, is_archive
from capsnmt.corpora.cleaning import judge_tokens
from capsnmt.corpora.formats import OF_SEGMENTS, PAGES, aligned, joined, read_text
from capsnmt.corpora.parallel import LINES, chunk_of, map_chunks, map_jobs, with_progress
from capsnmt.corpora.recipe import Piece, Recipe, language_of_side
from capsnmt.corpora.text import make_tokeniser
from capsnmt.files import remove
from capsnmt.forms import Words, check_order
from capsnmt.lines import blank_lines, read_lines

SEED = 1  # of the pairs that are held out
# what Moses' normalisation makes one, and its tokens
TYPOGRAPHY = str.maketrans(
    {**dict.fromkeys("„“”«»", '"'), **dict.fromkeys("‘’‚´`", "'"), "–": "-", "—": "-", "…": "..."}
)
TOKENS = re.compile(r"\w+|[^\w\s]")
Sentences = Iterator[Tuple[str, ...]]  # source, target, and further references
Texts = Mapping[str, Mapping[str, Sequence[Text]]]  # file -> pattern -> its texts


def write_raw(
    recipe: Recipe, sources: Mapping[str, Path], scratch: Path, workers: int, paths: Sequence[Path]
) -> None:
    """Write the sides of each split to ``paths``, in the order of ``recipe.subsets``.

    The members of archives are copied to the folder ``scratch`` first, archives in parallel.
    """
    needed = recipe.needed()
    jobs = [
        (name, sources[name], patterns, scratch / str(number))
        for number, (name, patterns) in enumerate(needed.items())
    ]
    remove(scratch)  # of a preparation that was killed
    try:
        texts = dict(zip(needed, map_jobs(_texts_of, jobs, workers)))
        pairs = {
            split: read_pairs(pieces, recipe.sides(split), texts)
            for split, pieces in recipe.splits.items()
        }
        training = partial(read_pairs, recipe.splits["train"], recipe.languages, texts)
        if recipe.held_out and all(piece.format in PAGES for piece in recipe.splits["train"]):
            pages = read_files(recipe.splits["train"], recipe.languages, texts)
            pairs.update(_hold_out_pages(recipe, pages))
        elif recipe.held_out:
            pairs.update(_hold_out(recipe, training))
        if recipe.valid_every:
            pairs.update(_take_every(recipe, training, workers))
        left = iter(paths)
        for split in recipe.subsets:
            _write(recipe, split, pairs[split], [*islice(left, len(recipe.sides(split)))])
    finally:
        remove(scratch)


def _texts_of(
    name: str, path: Path, patterns: Sequence[str], folder: Path
) -> Dict[str, List[Text]]:
    """Return the texts of a source by pattern; an archive in place of a plain file has a member."""
    source = Text(path, str(path))
    if patterns == [name] and not is_archive(path):
        return {name: [source]}
    return copy_texts(source, patterns, folder)


def read_pairs(pieces: Sequence[Piece], sides: Sequence[str], texts: Texts) -> Sentences:
    """Yield the sentence pairs of the pieces of a split, with the further references of each."""
    return (pair for _, pairs in read_files(pieces, sides, texts) for pair in pairs)


def read_files(
    pieces: Sequence[Piece], sides: Sequence[str], texts: Texts
) -> Iterator[Tuple[str, Sentences]]:
    """Yield the pairs of each file of the pieces, and the name of a page.

    Pages are aligned by that, which is what the wildcard of ``members`` stands for.
    """
    for piece in pieces:
        paged = piece.format in PAGES
        found = [texts[piece.source(side)][piece.pattern(side)] for side in sides]
        if paged:
            starts = [piece.pattern(side).partition("*")[0] for side in sides]
            named = [
                {text.name.partition(start)[2]: text for text in each}
                for each, start in zip(found, starts)
            ]
            names = [name for name in named[0] if all(name in each for each in named)]
            found = [[each[name] for name in names] for each in named]
        for side, each in zip(sides, found):
            if len(each) != len(found[0]):
                raise ConfigurationError(
                    f"{piece.file}: members {piece.members}: {len(found[0])} are {sides[0]} but "
                    f"{len(each)} are {side}; give the recipe's version"
                )
        for number, row in enumerate(zip(*found)):
            if piece.format in OF_SEGMENTS:
                check_order({text.name: read_lines(text.path, text.name) for text in row})
            streams = [
                read_text(text, piece.format, piece.columns.get(side, 1))
                for text, side in zip(row, sides)
            ]
            if paged:
                yield names[number], joined(streams)
            else:
                yield "", aligned(streams, [text.name for text in row])


def _hold_out_pages(recipe: Recipe, pages: Iterable[Tuple[str, Sentences]]) -> Dict[str, Sentences]:
    """Hold out whole pages, until they have as many pairs.

    **D**: in the order of a digest of their names: the same pages in every language, whatever other
    pages there are. A pair counts once, and no sentence of a set, on either side, is in a later one
    or in the training set.
    """
    left = iter(sorted(pages, key=lambda page: hashlib.sha256(page[0].encode()).digest()))
    known: Set[Tuple[int, str]] = set()  # side and sentence

    def unknown(page: Tuple[str, Sentences]) -> Sentences:
        return (pair for pair in page[1] if known.isdisjoint(enumerate(_key(pair))))

    pairs: Dict[str, Sentences] = {}
    for split, count in recipe.held_out.items():
        found: Dict[Tuple[str, str], Tuple[str, ...]] = {}
        while len(found) < count:
            page = next(left, None)
            if page is None:
                raise _too_few(recipe, len(found), count)
            found.update((_key(pair), pair) for pair in unknown(page))
        known.update(side for key in found for side in enumerate(key))
        pairs[split] = iter([*found.values()])
    pairs["train"] = chain.from_iterable(map(unknown, left))
    return pairs


def _too_few(recipe: Recipe, found: int, wanted: int) -> ConfigurationError:
    return ConfigurationError(
        f"{recipe.name}: {found:,} different pairs are too few to draw {wanted:,} from; "
        f"give more training pairs, or sets of your own"
    )


def _hold_out(recipe: Recipe, training: Callable[[], Sentences]) -> Dict[str, Sentences]:
    """Draw the pairs that are held out from the training pairs without blank lines.

    **D**: no pair is drawn twice, and a training pair that is equal to one of them also goes: it is
    known to the model. Equal are sentences of the same tokens, in any case, typography and Unicode
    form.
    """

    def usable() -> Sentences:
        return (pair for pair in training() if all(map(str.strip, pair)))

    number, total = sum(1 for _ in usable()), sum(recipe.held_out.values())
    places = random.Random(SEED).sample(range(number), min(number, total))
    chosen, drawn = set(places), iter(places)
    waiting: List[int] = []
    found: Dict[int, Tuple[str, ...]] = {}
    known: Set[Tuple[str, str]] = set()
    # In place of a repeated pair the next other one is taken; the last may need the text once more.
    for place, pair in enumerate(chain(usable(), usable())):
        if place in chosen:
            waiting.append(place)
        if waiting and _as_tokens(pair) not in known:
            known.add(_as_tokens(pair))
            found[waiting.pop(0)] = pair
            if len(found) == total:
                break
    else:
        raise _too_few(recipe, len(found), total)
    pairs: Dict[str, Sentences] = {
        split: iter([found[place] for place in sorted(islice(drawn, count))])
        for split, count in recipe.held_out.items()
    }
    pairs["train"] = _others(training(), known, total)
    return pairs


def _others(training: Sentences, known: Set[Tuple[str, str]], drawn: int) -> Sentences:
    """Yield the training pairs that are equal to none of those drawn; warn of other copies."""
    equal = 0
    for pair in training:
        if _as_tokens(pair) in known:
            equal += 1
        else:
            yield pair
    if equal > drawn:
        say(
            f"  WARNING: {equal - drawn:,} more training pairs are left out, equal to one that was "
            f"drawn; give sets of your own to keep them"
        )


def _key(pair: Tuple[str, ...]) -> Tuple[str, str]:
    return _words(pair[0]), _words(pair[1])


def _as_tokens(pair: Tuple[str, ...]) -> Tuple[str, str]:
    """Return what tokens tell apart of a pair, but for case."""
    texts = (words.translate(TYPOGRAPHY) for words in _key(pair))
    source, target = (" ".join(TOKENS.findall(text)) for text in texts)
    return source, target


def _words(sentence: str) -> str:
    return " ".join(unicodedata.normalize("NFC", sentence.casefold()).split())


def _take_every(
    recipe: Recipe, training: Callable[[], Sentences], workers: int
) -> Dict[str, Sentences]:
    """Take every n-th of the training pairs that cleaning keeps, as fairseq's scripts do."""
    chunks = ((chunk,) for chunk in _chunks(training()))
    kept = chain.from_iterable(map_chunks(partial(_kept, recipe), chunks, workers))
    places = [place for place, each in enumerate(kept) if each]
    taken = set(places[recipe.valid_every - 1 :: recipe.valid_every])

    def pairs(of_valid: bool) -> Sentences:
        return (each for place, each in enumerate(training()) if (place in taken) == of_valid)

    return {"train": pairs(False), "valid": pairs(True)}


def _kept(recipe: Recipe, pairs: Sequence[Tuple[str, ...]]) -> List[bool]:
    """Return whether each pair is within the limits, as tokenised."""
    limits = recipe.cleaning
    source, target = (make_tokeniser(recipe.tokenisers[side], side) for side in recipe.languages)
    return [judge_tokens(limits, source(left), target(right)) == "kept" for left, right in pairs]


def _chunks(pairs: Sentences) -> Iterator[List[Tuple[str, ...]]]:
    return iter(lambda: list(islice(pairs, LINES)), [])


def _write(recipe: Recipe, split: str, pairs: Sentences, paths: Sequence[Path]) -> None:
    """Write a split; warn of blank lines and of another number of lines than the papers'."""
    lines, names = 0, [f"{split}.{side}" for side in recipe.sides(split)]
    tokenisers = [recipe.tokenisers[language_of_side(side)] for side in recipe.sides(split)]
    words = [Words(of_tokens=name.startswith("none")) for name in tokenisers]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for chunk in with_progress(_chunks(pairs), split):
            lines += len(chunk)
            for pair in chunk:
                for side, sentence in zip(words, pair):
                    side.see(sentence)
            for file, sentences in zip(files, zip(*chunk)):
                file.write(chunk_of(sentences))
    if not lines:
        raise ConfigurationError(
            f"{recipe.name}: {' and '.join(names)} are empty; give other files"
        )
    expected = recipe.lines.get(split, lines)
    if lines != expected:
        say(f"  WARNING: {split} has {lines:,} pairs, and {expected:,} in the papers")
    for side, name in zip(words, names):
        side.check(f"{recipe.name}: {name}", "give text of words, joined and without symbols")
    if split != "train":  # cleaning drops blank lines of the training set
        for path, name in zip(paths, names):
            blank = blank_lines([*read_lines(path)], f"{recipe.name}: {name}")
            if blank:
                say(f"  WARNING: {blank:,} lines of {name} are blank")
