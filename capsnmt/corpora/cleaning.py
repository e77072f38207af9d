"""Cleaning: which tokenised or segmented training pairs are kept."""

import hashlib
from collections import Counter
from functools import partial
from itertools import chain, product
from operator import eq
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

import numpy as np

from capsnmt import records
from capsnmt.cli import ConfigurationError, say
from capsnmt.corpora.parallel import chunk_of, lines_of, map_chunks, read_chunks, with_progress
from capsnmt.corpora.recipe import Cleaning
from capsnmt.forms import SHARE

Pairs = List[Tuple[str, str]]
Judge = Callable[[Cleaning, str, str], str]
# D: characters of a word; BPE takes seconds for such a word, and hours for one of megabytes.
LONGEST_WORD = 10_000
# D: characters, as not every script has spaces. In blocks of 500 pairs of Multi30k, TED and
# LibreOffice's help lengths have a correlation of 0.85 to 0.99, with one line lost of -0.3 to 0.5
RELATED, FEWEST = 0.3, 100  # and of how many pairs


def judge_tokens(limits: Cleaning, source: str, target: str) -> str:
    """Return ``kept``, or the reason to drop a tokenised pair."""
    words = source.split(), target.split()
    lengths = len(words[0]), len(words[1])
    if not all(lengths):
        return "empty"
    if max(lengths) > limits.max_length:
        return "length"
    if max(lengths) > limits.max_ratio * min(lengths):
        return "ratio"
    longest = max(map(len, chain.from_iterable(words)))
    return "word" if longest > LONGEST_WORD else "kept"


def judge_subwords(limits: Cleaning, source: str, target: str) -> str:
    """Return ``kept``, or the reason to drop a segmented pair."""
    longest = max(len(source.split()), len(target.split()))
    return "subwords" if longest > limits.max_subwords else "kept"


def write_kept(
    judge: Judge, limits: Cleaning, read: Sequence[Path], workers: int, written: Sequence[Path]
) -> Dict[str, int]:
    """Write the pairs that are kept; return the number of pairs by verdict."""
    counts: Counter[str] = Counter()
    seen: Set[bytes] = set()
    chunks = map_chunks(partial(_keep, judge, limits), read_chunks(*read), workers)
    with written[0].open("wb") as source, written[1].open("wb") as target:
        for pairs, verdicts in with_progress(chunks, "train"):
            counts.update(verdicts)
            if limits.deduplicate:
                first = [pair for pair in pairs if _is_first(pair, seen)]
                counts.update(kept=len(first) - len(pairs), duplicate=len(pairs) - len(first))
                pairs = first
            source.write(chunk_of(left for left, _ in pairs))
            target.write(chunk_of(right for _, right in pairs))
    found = {verdict: number for verdict, number in sorted(counts.items()) if number}
    if "kept" not in found:
        raise ConfigurationError(
            f"cleaning leaves no training pair: {found} with {records.plain(limits)}: widen the "
            f"limits or give more data"
        )
    return found


def warn_of_known(
    name: str, text: Sequence[Path], others: Mapping[str, Sequence[Path]]
) -> Dict[str, int]:
    """Warn of pairs of other splits that are pairs of a text too; return how many each has.

    A sentence with several references is as many pairs, of which one is enough.
    """
    splits = {
        split: [{*product(row[:1], row[1:])} for row in zip(*map(_sentences, paths))]
        for split, paths in others.items()
    }
    every = set(chain.from_iterable(chain.from_iterable(splits.values())))
    known = every.intersection(zip(*map(_sentences, text)))
    found: Dict[str, int] = {}
    for split, rows in splits.items():
        if count := sum(not known.isdisjoint(row) for row in rows):
            found[split] = count
            _warn(f"{count:,} of {len(rows):,} pairs of {split} are in {name} too")
    return found


def warn_of_new_words(text: Path, others: Mapping[str, Path]) -> None:
    """Warn of other texts most of whose words are in no sentence of the training text.

    **D**: the reason is hardly another domain, but another language, script or case.
    """
    words = {
        name: Counter(chain.from_iterable(map(str.split, _sentences(path))))
        for name, path in others.items()
    }
    new = set(chain.from_iterable(words.values()))
    for sentence in _sentences(text):
        new.difference_update(sentence.split())
    for name, each in words.items():
        count, total = sum(each[word] for word in new), sum(each.values())
        if count > total / 2:
            _warn(
                f"{count:,} of {total:,} words of {name} are in no training sentence; is it of "
                f"this language, in the same script and case?"
            )


def warn_of_copies(text: Sequence[Path]) -> None:
    """Warn if many training pairs have the same sentence on both sides."""
    equal = Counter(map(eq, *map(_sentences, text)))
    if equal[True] > SHARE * (total := sum(equal.values())):
        _warn(f"{equal[True]:,} of {total:,} training pairs have one text on both sides")


def warn_of_unrelated(name: str, text: Sequence[Path]) -> None:
    """Warn of pairs of a text, in blocks, whose lengths say nothing of each other."""
    found = first = total = 0
    for chunk in read_chunks(*text):
        lengths = [[*map(len, lines_of(side))] for side in chunk]
        size = len(lengths[0])
        if size >= FEWEST:
            with np.errstate(invalid="ignore"):  # one side is constant, as of made-up tasks
                related = float(np.asarray(np.corrcoef(lengths))[0, 1])
            if related < RELATED:
                found, first = found + size, first or total + 1
        total += size
    if found:
        _warn(
            f"{found:,} of {total:,} pairs of {name}, from {first:,} on, have sides of unrelated "
            f"lengths; is each line the translation of the other?"
        )


def _warn(problem: str) -> None:
    say(f"  WARNING: {problem}")


def _sentences(path: Path) -> Iterator[str]:
    return chain.from_iterable(lines_of(chunk) for (chunk,) in read_chunks(path))


def _keep(
    judge: Judge, limits: Cleaning, source: bytes, target: bytes
) -> Tuple[Pairs, Counter[str]]:
    """Return the pairs of a chunk that are kept, and the number of all by verdict."""
    pairs = list(zip(lines_of(source), lines_of(target)))
    verdicts = [judge(limits, *pair) for pair in pairs]
    kept = [pair for pair, each in zip(pairs, verdicts) if each == "kept"]
    return kept, Counter(verdicts)


def _is_first(pair: Tuple[str, str], seen: Set[bytes]) -> bool:
    """Return whether a pair is not among those ``seen``, by a digest, and add it to them."""
    digest = hashlib.blake2b("\n".join(pair).encode(), digest_size=8).digest()
    if digest in seen:
        return False
    seen.add(digest)
    return True
