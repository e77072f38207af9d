"""Subwords by byte-pair encoding (Sennrich et al. 2016) with subword-nmt or sentencepiece."""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.blocks import Block, LineFunction, cut
from capsnmt.corpora.parallel import map_items

SENTENCES = 10_000_000  # sentences that sentencepiece keeps in memory
# D: characters of a word; BPE takes seconds for such a word, and hours for one of megabytes.
LONGEST_WORD = 10_000


@dataclass(frozen=True)
class Segmentation:
    """How words are split into subwords.

    Attributes:
        size: merge operations of ``bpe``; pieces of ``sentencepiece``.
        method: ``bpe`` or ``sentencepiece``.
        joint: one model and one dictionary for both languages, or one for each.
    """

    size: int
    method: str = "bpe"
    joint: bool = True

    def check(self, where: str) -> None:
        """Raise unless the values are allowed.

        Raises:
            ConfigurationError: one is not; the message starts with ``where``.
        """
        if self.method not in METHODS:
            raise ConfigurationError(
                f"{where}: segmentation method {self.method!r}: use {', '.join(METHODS)}"
            )
        if self.size < 1:
            raise ConfigurationError(
                f"{where}: segmentation size {self.size!r}: give a positive number"
            )

    def model(self, language: str) -> str:
        """Return the file name of the model for a language."""
        return MODELS[self.method] + ("" if self.joint else f".{language}")

    def learn(self, models: Mapping[Path, list[Path]], workers: int) -> None:
        """Learn each of ``models`` from all its texts together.

        Raises:
            ConfigurationError: the texts are too short.
        """
        METHODS[self.method](models, self.size, workers)

    @property
    def tool(self) -> str:
        """Return the distribution that implements the method."""
        return {"bpe": "subword-nmt", "sentencepiece": "sentencepiece"}[self.method]


def _make_counter() -> Callable[[Block], Counter[str]]:
    return lambda block: Counter(word for line in block.read() for word in line.split(" ") if word)


def count_words(texts: list[Path], workers: int) -> Counter[str]:
    """Count the words of ``texts``; only the vocabulary is in memory."""
    words: Counter[str] = Counter()
    blocks = [block for path in texts for block in cut(path)]
    for counts in map_items(_make_counter, (), blocks, workers):
        words.update(counts)
    return words


def learn_merges(words: Counter[str], codes: Path, merges: int) -> None:
    """Learn ``merges`` operations from word counts and write them to ``codes``."""
    from subword_nmt.learn_bpe import learn_bpe

    # subword-nmt shows a progress bar, which is noise unless on a terminal.
    quiet = io.StringIO() if not sys.stderr.isatty() else sys.stderr
    entries = (f"{word} {count}" for word, count in words.items())
    # It fails if no word has two characters, and writes nothing if no pair occurs twice.
    with (
        codes.open("w", encoding="utf-8", newline="\n") as stream,
        contextlib.suppress(ValueError),
        contextlib.redirect_stderr(quiet),
    ):
        learn_bpe(entries, stream, merges, is_dict=True)


def _make_merger(merges: int) -> Callable[[tuple[Counter[str], Path]], None]:
    return lambda item: learn_merges(*item, merges)


def learn_codes(models: Mapping[Path, list[Path]], merges: int, workers: int) -> None:
    """Learn ``merges`` operations for each of ``models`` from all its texts together.

    All ``workers`` count words. Each merge depends on the previous ones, so that one process learns
    a model; the models are learned at the same time.

    Raises:
        ConfigurationError: no pair of characters occurs twice in the texts.
    """
    counted = [(count_words(texts, workers), codes) for codes, texts in models.items()]
    for _ in map_items(_make_merger, (merges,), counted, workers):
        pass
    for codes, texts in models.items():
        with codes.open("rb") as written:
            if sum(1 for _ in written) < 2:
                raise ConfigurationError(
                    f"no BPE can be learned: no pair of characters occurs twice in the words of "
                    f"{' and '.join(map(str, texts))}: give a larger corpus"
                )


def learn_pieces(models: Mapping[Path, list[Path]], pieces: int, workers: int) -> None:
    """Learn a sentencepiece model with a vocabulary of ``pieces`` for each of ``models``.

    D: its BPE, because its unigram model depends on the number of threads.

    Raises:
        ConfigurationError: the texts are too short for so many pieces.
    """
    import sentencepiece

    for model, texts in models.items():
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
                raise ConfigurationError(
                    f"no sentencepiece model of {pieces} pieces can be learned from "
                    f"{texts[0].parent}: {str(error).splitlines()[-1].split('] ')[-1]}"
                ) from None


METHODS: dict[str, Callable[[Mapping[Path, list[Path]], int, int], None]] = {
    "bpe": learn_codes,
    "sentencepiece": learn_pieces,
}
MODELS = {"bpe": "codes", "sentencepiece": "sentencepiece.model"}


def make_segmenter(method: str, model: str) -> LineFunction:
    """Return the function that segments a tokenised line with the model in a file."""
    if method == "sentencepiece":
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=model)
        return lambda line: " ".join(processor.encode(line, out_type=str))
    from subword_nmt.apply_bpe import BPE

    with open(model, encoding="utf-8") as stream:
        segment = BPE(stream).segment

    def checked(line: str) -> str:
        if has_long_word(line):
            raise ConfigurationError(
                f"a word of more than {LONGEST_WORD:,} characters ({line[:20]}...): this text is "
                "not made of sentences: give another validation or test set"
            )
        return segment(line)

    return checked


def has_long_word(line: str) -> bool:
    """Return whether a line has a word of more than `LONGEST_WORD` characters."""
    return len(line) > LONGEST_WORD and max(map(len, line.split()), default=0) > LONGEST_WORD
