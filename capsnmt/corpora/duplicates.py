"""Find the repeated pairs of a corpus of any size in little memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

BUCKETS = 256
ENTRY = np.dtype([("digest", "V16"), ("line", "<u8")])


def entry(line: int, source: str, target: str) -> bytes:
    """Return the digest and the line number of a pair, as `mark_repeated` expects them."""
    text = f"{source}\n{target}".encode()
    return hashlib.blake2b(text, digest_size=16).digest() + line.to_bytes(8, "little")


def mark_repeated(entries: Iterable[bytes], lines: int, folder: Path) -> Path:
    """Write one byte for each line of a corpus: whether the pair repeats an earlier one.

    The digests are distributed over `BUCKETS` files, which are processed one by one: the memory is
    that of one bucket, 2 MB for the 20.6M pairs of WMT17.

    Args:
        entries: entries of the pairs to compare, in order and concatenated into chunks.
        lines: number of lines of the corpus.
        folder: created for the result and its buckets; 25 bytes a pair.

    Returns:
        the file of bytes.
    """
    folder.mkdir()
    with ExitStack() as stack:
        buckets = [
            stack.enter_context((folder / f"{number:03d}.bucket").open("wb"))
            for number in range(BUCKETS)
        ]
        for some in entries:
            for begin in range(0, len(some), ENTRY.itemsize):
                buckets[some[begin]].write(some[begin : begin + ENTRY.itemsize])
    repeated = np.memmap(folder / "repeated", np.bool_, "w+", shape=(max(1, lines),))
    for bucket in sorted(folder.glob("*.bucket")):
        found = np.fromfile(bucket, ENTRY)
        first = np.unique(found["digest"], return_index=True)[1]
        repeated[np.delete(found["line"], first)] = True
        bucket.unlink()
    repeated.flush()
    return folder / "repeated"
