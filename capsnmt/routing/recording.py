"""Recording of coupling coefficients, for analysis."""

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Iterator, List, Optional

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


_open: ContextVar[Optional[List[RoutingRecord]]] = ContextVar(
    "capsnmt_routing_records", default=None
)


@contextmanager
def record_routing() -> Iterator[List[RoutingRecord]]:
    """Record the coupling coefficients of every operator call inside the ``with`` block.

    Of nested blocks the innermost records. Recording ends with the block, even on an exception, and
    holds for the current thread or async task only. Recorded calls run on the eager backend.

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
    token = _open.set(records)
    try:
        yield records
    finally:
        _open.reset(token)


def open_records() -> Optional[List[RoutingRecord]]:
    """Return the list of the innermost open ``record_routing()`` block, if there is one."""
    return _open.get()
