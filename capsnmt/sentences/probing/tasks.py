"""SentEval's ten probing tasks (Conneau et al. 2018). This module needs no fairseq."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict

from capsnmt.cli import ConfigurationError


@dataclass(frozen=True)
class ProbingTask:
    """A probing task.

    Attributes:
        file: name of its file in SentEval.
        classes: number of classes.
        paper: name in the papers' tables.
        kind: kind of linguistic property, as in the papers.
    """

    file: str
    classes: int
    paper: str
    kind: str


# in the order of Li et al. 2019, Table 1, and Li et al. 2021, Table 7
TASKS: Dict[str, ProbingTask] = {
    "SentLen": ProbingTask("sentence_length.txt", 6, "SeLen", "Surface"),
    "WC": ProbingTask("word_content.txt", 1000, "WC", "Surface"),
    "TreeDepth": ProbingTask("tree_depth.txt", 7, "TrDep", "Syntactic"),
    "TopConst": ProbingTask("top_constituents.txt", 20, "ToCo", "Syntactic"),
    "BShift": ProbingTask("bigram_shift.txt", 2, "BShif", "Syntactic"),
    "Tense": ProbingTask("past_present.txt", 2, "Tense", "Semantic"),
    "SubjNum": ProbingTask("subj_number.txt", 2, "SubNm", "Semantic"),
    "ObjNum": ProbingTask("obj_number.txt", 2, "ObjNm", "Semantic"),
    "SOMO": ProbingTask("odd_man_out.txt", 2, "SOMO", "Semantic"),
    "CoordInv": ProbingTask("coordination_inversion.txt", 2, "CoIn", "Semantic"),
}


def require_task(name: str) -> ProbingTask:
    """Return the task of this name.

    Raises:
        ConfigurationError: no task has this name.
    """
    if name not in TASKS:
        raise ConfigurationError(f"--probing-task: {name!r}: choose from {', '.join(TASKS)}")
    return TASKS[name]
