"""Cleaning: which tokenised or segmented training pairs are kept."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from capsnmt.corpora.console import watched
from capsnmt.corpora.parallel import chunk_of, lines_of, map_chunks, read_chunks
from capsnmt.corpora.recipe import Cleaning
from capsnmt.corpora.subwords import has_long_word

Fault = Callable[[str, str], Optional[str]]  # of a pair: the reason to drop it, or None


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


def too_long(limits: Cleaning, source: str, target: str) -> Optional[str]:
    """Return the reason to drop a pair with too many subwords on a side, or None."""
    longest = max(len(source.split()), len(target.split()))
    return "subwords" if longest > limits.max_subwords else None


def write_kept(
    read: Tuple[Path, Path],
    written: Sequence[Path],
    fault: Fault,
    deduplicate: bool,
    label: str,
    workers: int,
) -> Dict[str, int]:
    """Write the pairs without fault; return the number of pairs kept and dropped, by reason."""
    counts: Counter[str] = Counter()
    seen: Set[bytes] = set()
    chunks = ((*chunk, fault) for chunk in read_chunks(*read))
    kept = map_chunks(_keep, chunks, workers)
    with written[0].open("wb") as source, written[1].open("wb") as target:
        for pairs, some in watched(kept, label, "lines", lambda made: sum(made[1].values())):
            if deduplicate:
                unseen = [pair for pair in pairs if _is_first(pair, seen)]
                some.update(kept=len(unseen) - len(pairs), duplicate=len(pairs) - len(unseen))
                pairs = unseen
            source.write(chunk_of(left for left, _ in pairs))
            target.write(chunk_of(right for _, right in pairs))
            counts.update(some)
    return {reason: number for reason, number in sorted(counts.items()) if number}


def _keep(source: bytes, target: bytes, fault: Fault) -> Tuple[List[Tuple[str, str]], Counter[str]]:
    """Return the pairs without fault, and the number of all by reason."""
    pairs = list(zip(lines_of(source), lines_of(target)))
    reasons = [fault(*pair) or "kept" for pair in pairs]
    kept = [pair for pair, reason in zip(pairs, reasons) if reason == "kept"]
    return kept, Counter(reasons)


def _is_first(pair: Tuple[str, str], seen: Set[bytes]) -> bool:
    """Return whether a pair is not among those ``seen``, by a digest, and add it to them."""
    digest = hashlib.blake2b("\n".join(pair).encode(), digest_size=8).digest()
    if digest in seen:
        return False
    seen.add(digest)
    return True
