"""Subwords by byte-pair encoding (Sennrich et al. 2016) with subword-nmt or sentencepiece."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Callable, List, Mapping, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.parallel import chunk_of, lines_of, map_chunks, read_chunks
from capsnmt.corpora.recipe import Segmentation

SENTENCES = 10_000_000  # sentences that sentencepiece keeps in memory
# D: characters of a word; BPE takes seconds for such a word, and hours for one of megabytes.
LONGEST_WORD = 10_000


def learn(
    segmentation: Segmentation, texts: Sequence[List[Path]], workers: int, models: Sequence[Path]
) -> None:
    """Learn each of ``models`` from all its texts together."""
    learners = {"bpe": _learn_codes, "sentencepiece": _learn_pieces}
    learners[segmentation.method](dict(zip(models, texts)), segmentation.size, workers)


def _count(chunk: bytes) -> Counter[str]:
    return Counter(word for line in lines_of(chunk) for word in line.split(" ") if word)


def count_words(texts: List[Path], workers: int) -> Counter[str]:
    """Count the words of ``texts``; only the vocabulary is in memory."""
    words: Counter[str] = Counter()
    chunks = chain.from_iterable(map(read_chunks, texts))
    for counts in map_chunks(_count, chunks, workers):
        words.update(counts)
    return words


def _learn_merges(words: Counter[str], codes: Path, merges: int) -> None:
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


def _learn_codes(models: Mapping[Path, List[Path]], merges: int, workers: int) -> None:
    """Learn merges of BPE: all ``workers`` count words, and one process learns each model.

    Each merge depends on the previous ones.
    """
    counted = [(count_words(texts, workers), codes, merges) for codes, texts in models.items()]
    for _ in map_chunks(_learn_merges, counted, min(workers, len(counted))):
        pass
    for codes, texts in models.items():
        with codes.open("rb") as written:
            if sum(1 for _ in written) < 2:
                raise ConfigurationError(
                    f"no BPE can be learned: no pair of characters occurs twice in the words of "
                    f"{' and '.join(map(str, texts))}: give a larger corpus"
                )


def _learn_pieces(models: Mapping[Path, List[Path]], pieces: int, workers: int) -> None:
    """Learn sentencepiece models with a vocabulary of ``pieces``.

    D: its BPE, because its unigram model depends on the number of threads.
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


def segment(method: str, model: Path, chunk: bytes) -> bytes:
    """Segment a chunk of tokenised lines by a model."""
    segmenter = _segmenter(method, str(model), model.stat().st_mtime_ns)
    return chunk_of(map(segmenter, lines_of(chunk)))


@functools.cache
def _segmenter(method: str, model: str, changed: int) -> Callable[[str], str]:
    """Read a model, once in a process unless it has changed."""
    if method == "sentencepiece":
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=model)
        return lambda line: " ".join(processor.encode(line, out_type=str))
    from subword_nmt.apply_bpe import BPE

    with open(model, encoding="utf-8") as stream:
        segmented: Callable[[str], str] = BPE(stream).segment
    return segmented


def has_long_word(line: str) -> bool:
    """Return whether a line has a word of more than `LONGEST_WORD` characters."""
    return len(line) > LONGEST_WORD and max(map(len, line.split()), default=0) > LONGEST_WORD
