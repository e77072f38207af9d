"""Cleaning: which tokenised or segmented training pairs are kept."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from capsnmt.corpora.console import watched
from capsnmt.corpora.parallel import chunk_of, lines_of, map_chunks, read_chunks
from capsnmt.corpora.recipe import Cleaning
from capsnmt.corpora.subwords import has_long_word

Fault = Callable[[str, str], Optional[str]]


def fault_of(limits: Cleaning, source: str, target: str) -> Optional[str]:
    """Return the reason to drop a tokenised pair, or None."""
    lengths = len(source.split()), len(target.split())
    if not all(lengths):
        return "empty"
    if max(lengths) > limits.max_length:
        return "length"
    if max(lengths) > limits.max_ratio * min(lengths):
        return "ratio"
    if has_long_word(source) or has_long_word(target):
        return "word"
    return None


def too_long(most: int, source: str, target: str) -> Optional[str]:
    """Return the reason to drop a pair with more than ``most`` subwords on a side, or None."""
    return "subwords" if max(len(source.split()), len(target.split())) > most else None


def write_kept(
    read: Tuple[Path, Path],
    written: Sequence[Path],
    fault: Fault,
    deduplicate: bool,
    label: str,
    workers: int,
) -> Dict[str, int]:
    """Write the pairs without fault; return the number of pairs kept and dropped, by reason.

    Args:
        read: the two sides.
        written: where to write them.
        fault: returns the reason to drop a pair, or None.
        deduplicate: whether pairs that repeat an earlier one are dropped.
        label: of the progress.
        workers: number of processes.
    """
    firsts = _first_of_equals(read, workers) if deduplicate else None

    def chunks() -> Iterator[Tuple[Any, ...]]:
        begin = 0
        for chunk in read_chunks(*read):
            end = begin + chunk[0].count(b"\n")
            yield chunk, fault, None if firsts is None else firsts[begin:end]
            begin = end

    counts: Counter[str] = Counter()
    kept = map_chunks(_keep, chunks(), workers)
    with written[0].open("wb") as source, written[1].open("wb") as target:
        for left, right, some in watched(kept, label, "lines", lambda made: sum(made[2].values())):
            source.write(left)
            target.write(right)
            counts.update(some)
    return dict(sorted(counts.items()))


def _keep(
    chunk: Tuple[bytes, bytes], fault: Fault, firsts: Optional[np.ndarray]
) -> Tuple[bytes, bytes, Counter[str]]:
    """Return the pairs without fault, and the numbers of all; ``firsts`` marks those to keep."""
    kept: List[Tuple[str, str]] = []
    counts: Counter[str] = Counter()
    for number, pair in enumerate(zip(*map(lines_of, chunk))):
        reason = fault(*pair)
        if reason is None and firsts is not None and not firsts[number]:
            reason = "duplicate"
        counts[reason or "kept"] += 1
        if reason is None:
            kept.append(pair)
    return chunk_of(left for left, _ in kept), chunk_of(right for _, right in kept), counts


def _digests(source: bytes, target: bytes) -> bytes:
    pairs = zip(source.split(b"\n")[:-1], target.split(b"\n")[:-1])
    return b"".join(hashlib.blake2b(b"\n".join(pair), digest_size=8).digest() for pair in pairs)


def _first_of_equals(paths: Tuple[Path, Path], workers: int) -> np.ndarray:
    """Return whether each pair is the first of those that are equal, by a digest of 8 bytes."""
    digests = b"".join(map_chunks(_digests, read_chunks(*paths), workers))
    numbers = np.frombuffer(digests, "<u8")
    firsts = np.zeros(len(numbers), bool)
    firsts[np.unique(numbers, return_index=True)[1]] = True
    return firsts
