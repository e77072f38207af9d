"""Subwords by byte-pair encoding (Sennrich et al. 2016) with subword-nmt or sentencepiece."""

import contextlib
import functools
import io
import sys
from pathlib import Path
from typing import Callable, Iterator, List, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.parallel import chunk_of, lines_of, map_jobs
from capsnmt.corpora.recipe import Segmentation
from capsnmt.lines import read_lines

SENTENCES = 10_000_000  # sentences that sentencepiece keeps in memory


def learn(
    segmentation: Segmentation, texts: Sequence[List[Path]], workers: int, models: Sequence[Path]
) -> None:
    """Learn each of ``models`` from all its texts together; merges of BPE one process a model."""
    if segmentation.method == "sentencepiece":
        for paths, model in zip(texts, models):
            _learn_pieces(paths, segmentation.size, workers, model)
        return
    jobs = [(paths, segmentation.size, model) for paths, model in zip(texts, models)]
    for _ in map_jobs(_learn_merges, jobs, workers):
        pass


def take(codes: Path, models: Sequence[Path]) -> None:
    """Take the merges of BPE that are published with a text."""
    models[0].write_bytes(chunk_of(read_lines(codes)))


def _lines(texts: List[Path]) -> Iterator[str]:
    for path in texts:
        with path.open(encoding="utf-8", newline="\n") as stream:
            yield from stream


def _learn_merges(texts: List[Path], merges: int, codes: Path) -> None:
    from subword_nmt.learn_bpe import learn_bpe

    # subword-nmt shows a progress bar, which is noise unless on a terminal.
    quiet = io.StringIO() if not sys.stderr.isatty() else sys.stderr
    # It fails if no word has two characters, and writes nothing if no pair occurs twice.
    with (
        codes.open("w", encoding="utf-8", newline="\n") as stream,
        contextlib.suppress(ValueError),
        contextlib.redirect_stderr(quiet),
    ):
        learn_bpe(_lines(texts), stream, merges)
    if codes.read_bytes().count(b"\n") < 2:
        raise ConfigurationError(
            f"no BPE can be learned: no pair of characters occurs twice in the words of "
            f"{' and '.join(map(str, texts))}; give a larger corpus"
        )


def _learn_pieces(texts: List[Path], pieces: int, workers: int, model: Path) -> None:
    """Learn a sentencepiece model with a vocabulary of ``pieces``.

    D: its BPE, because its unigram model depends on the number of threads.
    """
    import sentencepiece

    with model.open("wb") as stream:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line.rstrip("\n") for line in _lines(texts)),
                model_writer=stream,
                vocab_size=pieces,
                model_type="bpe",
                # D: the text is NFC. Its own rule, NFKC, would make ASCII of full-width characters
                # in translations, and not in the references.
                normalization_rule_name="identity",
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
