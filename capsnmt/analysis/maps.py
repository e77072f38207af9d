"""The maps of a sentence, as the browser of the page reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, List, Sequence, Tuple

import torch
from torch import Tensor

from capsnmt.analysis.agreement import by_strongest_input

MOST_COLUMNS = 64  # of a map of output capsules


@dataclass(frozen=True)
class Axis:
    """What the rows or columns of a map, or a choice among maps, are."""

    name: str
    labels: Sequence[str]
    numbered: bool = False  # whether a label is told by its number: subwords repeat
    chosen: int = 0  # of a choice, what is shown first


@dataclass(frozen=True)
class Map:
    """Maps of one place of a model: their values by choices, row and column."""

    name: str
    place: str
    kind: str  # weights, loss, or what is routed
    layer: int
    choices: Sequence[Axis]
    rows: Axis
    columns: Axis
    values: Any


@dataclass
class Sentence:
    """Subwords of a sentence, and its maps."""

    source: List[str] = field(default_factory=list)
    inputs: List[str] = field(default_factory=list)  # of the decoder
    target: List[str] = field(default_factory=list)  # what it predicts at each input
    attention: List[Map] = field(default_factory=list)
    coefficients: List[Map] = field(default_factory=list)
    loss: List[Map] = field(default_factory=list)


def with_few_columns(coefficients: Sequence[Tensor]) -> Tuple[List[Tensor], List[str]]:
    """Return C ``[I, N]`` of each iteration in at most ``MOST_COLUMNS`` columns, with their labels.

    A label is the number of an output capsule, or the first and last of those whose mean the column
    is, in sorted order.
    """
    order = by_strongest_input(coefficients[-1])
    group = -(-len(order) // MOST_COLUMNS)
    parts = [range(1, len(order) + 1)[at : at + group] for at in range(0, len(order), group)]
    labels = [str(part[0]) if group == 1 else f"{part[0]}-{part[-1]}" for part in parts]
    return [
        torch.stack([part.mean(-1) for part in C[:, order].split(group, dim=-1)], dim=-1)
        for C in coefficients
    ], labels


def numbers(count: int) -> List[str]:
    """Return the numbers from 1 as text."""
    return [str(number) for number in range(1, count + 1)]


def rounded(values: Tensor, digits: int) -> Any:
    """Return nested lists of rounded numbers."""
    return values.double().cpu().round(decimals=digits).tolist()
