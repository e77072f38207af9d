"""Subwords: byte-pair encoding (Sennrich et al. 2016) by subword-nmt, or by sentencepiece."""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import sentencepiece
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from data_prep.errors import PreparationError
from data_prep.parallel import LineFunction, map_items

BYTES_A_RANGE = 16 << 20
SENTENCES = 10_000_000  # that sentencepiece keeps in memory


@dataclass(frozen=True)
class Segmentation:
    """How words become subwords.

    Attributes:
        size: operations of ``bpe``; pieces of ``sentencepiece``.
        method: ``bpe`` or ``sentencepiece``.
        joint: one model and one dictionary for both languages, or one for each.
    """

    size: int
    method: str = "bpe"
    joint: bool = True

    def check(self, where: str) -> None:
        """Raise a PreparationError that starts with `where` if a value cannot be."""
        if self.method not in METHODS:
            raise PreparationError(
                f"{where}: segmentation method {self.method!r}: use {', '.join(METHODS)}"
            )
        if self.size < 1:
            raise PreparationError(
                f"{where}: segmentation size {self.size!r}: give a positive number"
            )

    def model(self, language: str) -> str:
        """Return the name of the file with the model for `language`."""
        return MODELS[self.method] + ("" if self.joint else f".{language}")

    def learn(self, texts: list[Path], model: Path, workers: int) -> None:
        """Learn the model from all `texts` together.

        Raises:
            PreparationError: the texts are too small.
        """
        METHODS[self.method](texts, model, self.size, workers)

    @property
    def tool(self) -> str:
        """Return the distribution that does it."""
        return {"bpe": "subword-nmt", "sentencepiece": "sentencepiece"}[self.method]


def _ranges(path: Path) -> Iterator[tuple[str, int, int]]:
    size = path.stat().st_size
    for begin in range(0, size, BYTES_A_RANGE):
        yield str(path), begin, min(size, begin + BYTES_A_RANGE)


def _make_counter() -> Callable[[tuple[str, int, int]], Counter[str]]:
    return _count


def _count(part: tuple[str, int, int]) -> Counter[str]:
    """Return the words of the lines that begin in a range of bytes of a file."""
    name, begin, end = part
    words: Counter[str] = Counter()
    with open(name, "rb") as stream:
        if begin:
            stream.seek(begin - 1)
            stream.readline()
        while stream.tell() < end:
            line = stream.readline()
            words.update(word for word in line.decode("utf-8").strip("\r\n ").split(" ") if word)
    return words


def learn_codes(texts: list[Path], codes: Path, merges: int, workers: int) -> None:
    """Learn `merges` operations on all `texts` together and write them to `codes`.

    Words are counted on all `workers`; the merges themselves follow from one another, on one.
    What is kept in memory is the vocabulary, whatever the number of lines.

    Raises:
        PreparationError: no two characters come twice in a word of the texts.
    """
    words: Counter[str] = Counter()
    for counts in map_items(_make_counter, (), chain.from_iterable(map(_ranges, texts)), workers):
        words.update(counts)
    # subword-nmt shows its own bar, which is noise anywhere but on a terminal.
    quiet = io.StringIO() if not sys.stderr.isatty() else sys.stderr
    entries = (f"{word} {count}" for word, count in words.items())
    # It fails where no word has two characters, and writes nothing where none comes twice.
    with (
        codes.open("w", encoding="utf-8", newline="\n") as stream,
        contextlib.suppress(ValueError),
        contextlib.redirect_stderr(quiet),
    ):
        learn_bpe(entries, stream, merges, is_dict=True)
    with codes.open("rb") as written:
        if sum(1 for _ in written) < 2:
            raise PreparationError(
                f"no BPE can be learned: no two characters come twice in a word of "
                f"{' and '.join(map(str, texts))}; give a larger corpus"
            )


def learn_pieces(texts: list[Path], model: Path, pieces: int, workers: int) -> None:
    """Learn a sentencepiece model with a vocabulary of `pieces` and write it to `model`.

    D: its BPE and not its unigram model, which depends on the number of threads.

    Raises:
        PreparationError: the texts are too small for so many pieces.
    """
    lines = chain.from_iterable(path.open(encoding="utf-8", newline="\n") for path in texts)
    with model.open("wb") as stream:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line.rstrip("\n") for line in lines),
                model_writer=stream,
                vocab_size=pieces,
                model_type="bpe",
                character_coverage=0.9995,
                input_sentence_size=SENTENCES,
                num_threads=workers,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise PreparationError(
                f"no sentencepiece model of {pieces} pieces can be learned from {texts[0].parent}: "
                f"{str(error).splitlines()[-1].split('] ')[-1]}"
            ) from None


METHODS: dict[str, Callable[[list[Path], Path, int, int], None]] = {
    "bpe": learn_codes,
    "sentencepiece": learn_pieces,
}
MODELS = {"bpe": "codes", "sentencepiece": "sentencepiece.model"}


def make_segmenter(method: str, model: str) -> LineFunction:
    """Return the function that segments a tokenised line with the model in the file `model`."""
    if method == "sentencepiece":
        processor = sentencepiece.SentencePieceProcessor(model_file=model)
        return lambda line: " ".join(processor.encode(line, out_type=str))
    with open(model, encoding="utf-8") as stream:
        return BPE(stream).segment
