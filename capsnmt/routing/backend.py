"""The one place that decides how an operator runs: eager now, compiled where that pays back."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Callable, Iterator, List, Optional, Sequence

import torch
from torch import Tensor

from .numerics import compute_dtype
from .recording import append_record, is_recording

BACKENDS = ("auto", "eager", "compiled")

Kernel = Callable[..., Any]

_backend: ContextVar[str] = ContextVar("capsnmt_routing_backend", default="auto")


def check_backend(name: str) -> str:
    """Return ``name`` if it is a backend, else raise a ValueError that lists them."""
    if name not in BACKENDS:
        raise ValueError(
            f"routing backend {name!r} is unknown; choose one of {', '.join(BACKENDS)}"
        )
    return name


@contextmanager
def routing_backend(name: str) -> Iterator[None]:
    """Choose the backend of the operator calls inside the ``with`` block."""
    token = _backend.set(check_backend(name))
    try:
        yield
    finally:
        _backend.reset(token)


def full_precision(kernel: Kernel) -> Kernel:
    """Run ``kernel`` on fp32 (fp64 for fp64 votes) whatever autocast says; cast its results back."""

    @functools.wraps(kernel)
    def wrapped(votes: Tensor, *tensors: Optional[Tensor], **options: Any) -> Any:
        dtype = compute_dtype(votes)
        wide = (
            t.to(dtype) if t is not None and t.is_floating_point() else t for t in (votes, *tensors)
        )
        with torch.autocast(votes.device.type, enabled=False):
            results = kernel(*wide, **options)
        if isinstance(results, tuple):
            return tuple(result.to(votes.dtype) for result in results)
        return results.to(votes.dtype)

    return wrapped


def run_operator(
    operator: str,
    kernel: Kernel,
    votes: Tensor,
    *tensors: Optional[Tensor],
    leading: Sequence[int],
    iterations: int,
    backend: Optional[str] = None,
) -> Any:
    """Run a kernel on flat ``[tokens, ...]`` tensors; give its results their leading dims back."""
    check_backend(_backend.get() if backend is None else backend)
    trace: Optional[List[Tensor]] = [] if is_recording() else None

    def restore(flat: Tensor) -> Tensor:
        return flat.reshape(*leading, *flat.shape[1:])

    results = kernel(votes, *tensors, iterations=iterations, trace=trace)
    if trace is not None:
        append_record(operator, [restore(C) for C in trace])
    return tuple(map(restore, results)) if isinstance(results, tuple) else restore(results)
