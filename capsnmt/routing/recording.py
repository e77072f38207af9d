"""Recording of coupling coefficients, for analysis."""

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Iterator, List, Tuple

from torch import Tensor


@dataclass(frozen=True)
class RoutingRecord:
    """The coupling coefficients of one operator call.

    Attributes:
        operator: the operator's name, e.g. ``em_routing``.
        coefficients: C of each iteration, ``[..., I, N]``, detached, in the kernel's precision;
            for horizontal routing ``[B, L, L, H]``, where row l holds its inputs t <= l.
    """

    operator: str
    coefficients: List[Tensor]


_listeners: ContextVar[Tuple[List[RoutingRecord], ...]] = ContextVar(
    "capsnmt_routing_records", default=()
)


@contextmanager
def record_routing(apart: bool = False) -> Iterator[List[RoutingRecord]]:
    """Record the coupling coefficients of every operator call inside the ``with`` block.

    Blocks nest: a call is appended to the list of every enclosing block, unless the block is
    ``apart`` from them, as when a layer runs again for its gradients. Recording ends with the
    block, even on an exception, and holds for the current thread or async task only. Recorded
    calls run on the eager backend.

    >>> import torch
    >>> from capsnmt.routing import simple_routing
    >>> with record_routing() as records:
    ...     _ = simple_routing(torch.ones(2, 4, 1), iterations=2)
    >>> [(record.operator, len(record.coefficients)) for record in records]
    [('simple_routing', 2)]
    >>> records[0].coefficients[0]
    tensor([[0.2500, 0.2500, 0.2500, 0.2500],
            [0.2500, 0.2500, 0.2500, 0.2500]])
    """
    records: List[RoutingRecord] = []
    token = _listeners.set((*(() if apart else _listeners.get()), records))
    try:
        yield records
    finally:
        _listeners.reset(token)


def is_recording() -> bool:
    """Return whether a ``record_routing()`` block is open."""
    return bool(_listeners.get())


def append_record(operator: str, coefficients: List[Tensor]) -> None:
    """Append one call's coefficients to the list of every open ``record_routing()`` block."""
    for records in _listeners.get():
        records.append(RoutingRecord(operator, list(coefficients)))
