"""The task ``logical_inference`` (Bowman et al. 2015; Li et al. 2021, section 4.3).

No postponed annotations here: fairseq reads the types off the dataclass.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, List, Sequence

from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task

from capsnmt.errors import ConfigurationError
from capsnmt.sentences.examples import Example
from capsnmt.sentences.logical_inference.data import MAX_OPERATORS, read_split
from capsnmt.sentences.logical_inference.propositions import RELATIONS, VARIABLES
from capsnmt.tasks.classification import ClassificationTask


@dataclass
class LogicalInferenceConfig(FairseqDataclass):
    """Where the data is, and how much of it is for training."""

    data: str = field(
        default="", metadata={"help": "folder with train0..12 and test0..12, plain or gzipped"}
    )
    max_operators: int = field(
        default=6, metadata={"help": "operators of the longest sentences to train on"}
    )


@register_task("logical_inference", dataclass=LogicalInferenceConfig)
class LogicalInferenceTask(ClassificationTask):
    """The relation between two propositions, of seven; the bucket is the number of operators."""

    num_sentences = 2
    buckets = tuple(range(MAX_OPERATORS + 1))

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        if not 0 <= cfg.max_operators <= MAX_OPERATORS:
            raise ConfigurationError(
                f"--max-operators: {cfg.max_operators}: give 0 to {MAX_OPERATORS} (the paper "
                f"trains on at most 6)"
            )

    def read_symbols(self) -> List[str]:
        """The tokens of the grammar."""
        return ["(", ")", "not", "and", "or", *VARIABLES]

    def read_classes(self) -> List[str]:
        """The seven relations."""
        return list(RELATIONS)

    def read_examples(self, split: str) -> Sequence[Example]:
        """The pairs of a split, of all its files."""
        return read_split(Path(self.cfg.data), split, self.cfg.max_operators)
