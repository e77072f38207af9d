"""The settings of an evaluation, which need no library: ``--help`` does not wait for sacreBLEU."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

from capsnmt.evaluation.scores import Test
from capsnmt.evaluation.text import TextFormat

SET = "{set}"


@dataclass(frozen=True)
class Settings:
    """The settings of an evaluation."""

    systems: Mapping[str, Sequence[str]]  # name -> a file for each seed; the baseline first
    text: TextFormat  # how a file becomes text
    references: Sequence[str]  # raw, one or more
    metrics: Sequence[str]  # keys of METRICS
    tested: bool  # whether the systems are tested against the first
    test: Test
    tokenized_references: Sequence[str] = ()  # without one, both sides are tokenised with Moses
    source: Optional[str] = None  # tokens, for BLEU by length; None: the S- lines
    # metric -> system -> FILE[,FILE...]
    segment_scores: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    compare_mt: Optional[Path] = None  # the folder of compare-mt's report
    test_sets: Sequence[str] = ()  # their names, which take the place of {set} in all paths
    plan: Optional[float] = None  # a difference in BLEU that more seeds are to show
    details: bool = False  # whether all that the record has is printed

    def of(self, test_set: str) -> Settings:
        """Return the settings of one of several test sets."""

        def named(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: named(each) for key, each in value.items()}
            if isinstance(value, (list, tuple)):
                return [named(each) for each in value]
            return value.replace(SET, test_set) if isinstance(value, str) else value

        return replace(
            self,
            test_sets=(),
            systems=named(self.systems),
            references=named(self.references),
            tokenized_references=named(self.tokenized_references),
            source=named(self.source),
            segment_scores=named(self.segment_scores),
        )
