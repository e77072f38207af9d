"""The base class of all analyses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Dict, List, Mapping, Sequence, Union

from capsnmt.analysis.forward_pass import Aggregated, Attended, Routed, Stacks

if TYPE_CHECKING:
    from capsnmt.analysis.model import System

Cell = Union[str, int, float, None]


class NotApplicableError(Exception):
    """The reason why a model has nothing that an analysis could show, in one line."""


@dataclass(frozen=True)
class Table:
    """A CSV file of an analysis.

    Attributes:
        columns: its columns after ``system``.
        rows: its rows, without the system.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Picture:
    """A figure of an analysis.

    Attributes:
        name: name of its files, without an extension.
        alt: description for readers who do not see it.
        caption: text below it.
        draw: draws it with matplotlib, inside :func:`capsnmt.report.figures.drawing`.
    """

    name: str
    alt: str
    caption: str
    draw: Callable[[], Any]


class Analysis:
    """One analysis of one system.

    The model runs once over the sentences, without dropout and with the decoder teacher-forced on
    the references. During the run it calls the methods below; an analysis keeps sums, not
    tensors, so that its memory does not depend on the number of sentences. All tensors are
    detached, batch first, on the model's device.

    Attributes:
        name: name of the CSV file and of ``--only``.
        title: heading on the page.
        explanation: what the numbers are, in plain words.
        columns: columns of the CSV file after ``system``.

    Args:
        system: the system.

    Raises:
        NotApplicableError: the model has nothing to analyse.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    explanation: ClassVar[str]
    columns: ClassVar[Sequence[str]]

    def __init__(self, system: System) -> None:
        self.system = system

    def attended(self, call: Attended) -> None:
        """Take one attention of one layer on one batch."""

    def routed(self, call: Routed) -> None:
        """Take one call of a routing operator on one batch."""

    def aggregated(self, call: Aggregated) -> None:
        """Take one aggregation of a stack's layers on one batch."""

    def passed(self, stacks: Stacks) -> None:
        """Take the states of both stacks on one batch, after all other calls on the batch."""

    def finish(self) -> None:
        """Complete the analysis after the last batch; the model is still there."""

    def rows(self) -> List[Sequence[Cell]]:
        """Return the rows of the CSV file, without the system."""
        raise NotImplementedError

    def tables(self) -> Dict[str, Table]:
        """Return the CSV files by name; one file, unless an analysis has several."""
        return {self.name: Table(self.columns, self.rows())}

    @classmethod
    def pictures(cls, systems: Mapping[str, Any]) -> List[Picture]:
        """Return the figures that compare systems.

        Args:
            systems: name of each system -> its finished analysis, an instance of this class.
        """
        return []
