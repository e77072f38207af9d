"""Joint byte-pair encoding (Sennrich et al. 2016), by subword-nmt."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from data_prep.errors import PreparationError
from data_prep.parallel import LineFunction


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as stream:
        yield from stream


def learn(texts: list[Path], codes: Path, merges: int) -> None:
    """Learn `merges` operations on all `texts` together and write them to `codes`.

    Raises:
        PreparationError: the texts hold no word of two characters.
    """
    # subword-nmt shows its own bar, which is noise anywhere but on a terminal.
    quiet = io.StringIO() if not sys.stderr.isatty() else sys.stderr
    with codes.open("w", encoding="utf-8", newline="\n") as stream:
        try:
            with contextlib.redirect_stderr(quiet):
                learn_bpe(chain.from_iterable(map(_lines, texts)), stream, merges)
        except ValueError:
            raise PreparationError(
                f"no BPE can be learned: the training text in {texts[0].parent} has no word "
                f"of two characters; give a larger corpus"
            ) from None


def make_segmenter(codes: str) -> LineFunction:
    """Return the function that segments a tokenised line with the operations in file `codes`."""
    with open(codes, encoding="utf-8") as stream:
        return BPE(stream).segment
