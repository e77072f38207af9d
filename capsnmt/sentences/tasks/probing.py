"""The task ``probing``: SentEval's probing tasks (Conneau et al. 2018).

No postponed annotations: fairseq reads the types of the dataclass fields at run time.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task

from capsnmt.cli import ConfigurationError, exits_as_errors
from capsnmt.models.switches import check, switch
from capsnmt.sentences.examples import Example
from capsnmt.sentences.senteval import LENGTHS, TASKS, read_task, require_task
from capsnmt.sentences.tasks.classification import ClassificationTask


@dataclass
class ProbingConfig(FairseqDataclass):
    """The probing task and its tokenisation."""

    data: str = field(default="", metadata={"help": "folder with SentEval's probing files"})
    probing_task: str = field(default="", metadata={"help": f"probing task: {', '.join(TASKS)}"})
    min_count: int = switch(
        2,
        "rarer words of the training sentences are mapped to the unknown word",
        least=1,
        needs=[{"dictionary": (None,)}],
    )
    dictionary: Optional[str] = switch(
        None, "dict.LANG.txt of fairseq-preprocess, instead of --min-count"
    )
    bpe_codes: Optional[str] = switch(None, "subword-nmt codes for splitting words")


def load_dictionary(path: str) -> List[str]:
    """Return the words of a fairseq dictionary without its special symbols."""
    try:
        dictionary = Dictionary.load(path)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"--dictionary {path}: not a fairseq dictionary: {reason}"
        ) from None
    return dictionary.symbols[dictionary.nspecial :]


def load_bpe(path: str) -> Callable[[str], str]:
    """Return a function that splits a line into subwords by the codes of a file."""
    from subword_nmt.apply_bpe import BPE

    try:
        with open(path, encoding="utf-8") as codes, exits_as_errors():
            return BPE(codes).process_line
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"--bpe-codes {path}: {reason}") from None


@register_task("probing", dataclass=ProbingConfig)
class ProbingTask(ClassificationTask):
    """Classify a sentence; its bucket is its length.

    **D**: words that occur once in the training sentences are mapped to the unknown word. Their
    embeddings would hardly be trained, and unknown words of the test set need a trained symbol.
    """

    buckets = LENGTHS

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        require_task(cfg.probing_task)
        check(cfg, ProbingConfig)
        self.bpe = load_bpe(cfg.bpe_codes) if cfg.bpe_codes else None

    def segment(self, sentence: str) -> List[str]:
        """Split a sentence into words or, with ``--bpe-codes``, subwords."""
        return (self.bpe(sentence) if self.bpe else sentence).split()

    def read_symbols(self) -> List[str]:
        """Return the words of ``--dictionary`` or of the training data, frequent ones first."""
        if self.cfg.dictionary:
            return load_dictionary(self.cfg.dictionary)
        counts: Counter = Counter()
        for example in self.read_examples("train"):
            counts.update(self.segment(example.sentences[0]))
        frequent = [word for word, count in counts.items() if count >= self.cfg.min_count]
        return sorted(frequent, key=lambda word: (-counts[word], word))

    def read_classes(self) -> List[str]:
        """Return the labels of the training sentences; there must be several."""
        examples = self.read_examples("train")
        labels = sorted({example.label for example in examples})
        if len(labels) < 2:
            raise ConfigurationError(
                f"{examples[0].path}: all training sentences have the label {labels[0]!r}: a "
                f"probing task needs two or more labels"
            )
        return labels

    def read_examples(self, split: str) -> Sequence[Example]:
        """Return the sentences of a split."""
        return read_task(Path(self.cfg.data), self.cfg.probing_task)[split]

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model; an encoder that is probed needs the dictionary of its training."""
        if getattr(cfg, "probe_checkpoint", None) and not self.cfg.dictionary:
            raise ConfigurationError(
                f"--probe-checkpoint {cfg.probe_checkpoint} needs the dictionary of its training; "
                f"give --dictionary DATA-BIN/dict.LANG.txt, and --bpe-codes if it had any"
            )
        return super().build_model(cfg, from_checkpoint)
