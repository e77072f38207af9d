"""The task ``logical_inference`` (Bowman et al. 2015; Li et al. 2021, section 4.3).

No postponed annotations: fairseq reads the types of the dataclass fields at run time.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, List, Sequence

from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task

from capsnmt.models.switches import check, switch
from capsnmt.sentences.examples import Example
from capsnmt.sentences.logic import RELATIONS, VARIABLES
from capsnmt.sentences.logical_inference import MAX_OPERATORS, read_split
from capsnmt.sentences.tasks.classification import ClassificationTask


@dataclass
class LogicalInferenceConfig(FairseqDataclass):
    """The data folder and the length of the training sentences."""

    data: str = field(
        default="", metadata={"help": "folder with train0..12 and test0..12, plain or gzipped"}
    )
    max_operators: int = switch(
        6,
        "train on sentences with at most this many operators",
        least=0,
        most=MAX_OPERATORS,
        note="the paper trains on at most 6",
    )


@register_task("logical_inference", dataclass=LogicalInferenceConfig)
class LogicalInferenceTask(ClassificationTask):
    """Classify the relation between two propositions, one of seven.

    The bucket of an example is its number of operators.
    """

    num_sentences = 2
    buckets = tuple(range(MAX_OPERATORS + 1))

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        check(cfg, LogicalInferenceConfig)

    def read_symbols(self) -> List[str]:
        """Return the tokens of the grammar."""
        return ["(", ")", "not", "and", "or", *VARIABLES]

    def read_classes(self) -> List[str]:
        """Return the seven relations."""
        return list(RELATIONS)

    def read_examples(self, split: str) -> Sequence[Example]:
        """Return the pairs of a split from all its files."""
        return read_split(Path(self.cfg.data), split, self.cfg.max_operators)
