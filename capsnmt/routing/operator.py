"""How an operator runs: by a kernel of ours, compiled or eager, in one call or in blocks."""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Dict, List, Optional, Sequence, Set, cast

import torch
from torch import Tensor

from capsnmt.fast.cpp import routing as cpp
from capsnmt.fast.cpp.build import is_built
from capsnmt.fast.triton import launch as fused
from capsnmt.routing.tracing import is_traced

from .backend import BackendError, Kernel, check_backend, compile_obstacle, explained
from .checks import check_iterations
from .inputs_kept import keep_inputs
from .numerics import compute_dtype
from .recording import append_record, is_recording

COMPILE_MINIMUM = 2**20
"""Smallest number of votes for which ``auto`` compiles (1,024 tokens x 8 x 128).

A kernel compiles in 9 to 24 s, and again for every combination of masks. At a quarter of this size
a call then saves 0 to 3 ms of 4 to 10: that pays after thousands of updates.
"""

BLOCK_SIZE = 2**19
"""Votes per block on a CPU: 2 MiB in fp32. The temporaries of a block stay in the cache and in
memory that the allocator already holds. Larger ones are mapped again for every operation."""

_failed: Set[Kernel] = set()  # not compiled again where eager code can take over


@dataclass
class Operator:
    """An operator in plain torch, and what runs it faster.

    The two registries of :mod:`capsnmt.fast` have the kernels by its name.

    Attributes:
        name: the name under which its calls are recorded.
        kernel: ``kernel(votes, *others, **options, trace=...)``, for votes ``[tokens, ...]``. Its
            results, a tensor or a tuple, have one row for each token, and the rows are independent
            of one another.
        rows: how many of its tensors have a row for each token: the votes, masks. All tokens share
            the others. Each may be None but the votes.
        precise: the kernel in fp32 or better.
    """

    name: str
    kernel: Kernel
    rows: int

    def __post_init__(self) -> None:
        self.precise = full_precision(self.kernel)

    def __call__(
        self, votes: Tensor, *others: Optional[Tensor], backend: str, **options: Any
    ) -> Any:
        """Run the kernel, with its other tensors and options, on the chosen backend.

        All dimensions of the votes but the last three are flattened into tokens, because one
        compiled kernel then serves all, and restored in the results.
        """
        check_iterations(options["iterations"])
        leading = votes.shape[:-3]

        def flatten(x: Tensor) -> Tensor:
            return x.reshape(math.prod(leading), *x.shape[len(leading) :])

        def restore(flat: Tensor) -> Tensor:
            return flat.reshape(*leading, *flat.shape[1:])

        own = [None if x is None else flatten(x) for x in (votes, *others)[: self.rows]]
        tensors = (*own, *others[self.rows - 1 :])
        if is_traced():
            results = self.precise(*tensors, **options)
        elif is_recording():
            trace: List[Tensor] = []
            results = self.precise(*tensors, **options, trace=trace)
            append_record(self.name, [restore(C) for C in trace])
        else:
            name = check_backend(backend, votes.device.type)
            results = self.run(name, tensors, options)
        return tuple(map(restore, results)) if isinstance(results, tuple) else restore(results)

    def run(
        self, backend: str, tensors: Sequence[Optional[Tensor]], options: Dict[str, Any]
    ) -> Any:
        """Run the kernel on a backend that this machine has.

        **D**: without a kernel of ours, autograd would keep up to 12 tensors of the votes' size for
        EM routing. On a GPU they are computed again from the votes: eagerly by :func:`keep_inputs`;
        compiled, by inductor, except for the matrix products of horizontal routing. A CPU keeps
        them: it has more memory, and less time.
        """
        votes = cast(Tensor, tensors[0])
        in_cpp, in_triton = cpp.KERNELS.get(self.name), fused.KERNELS.get(self.name)
        if in_cpp is not None and takes_cpp(backend, tensors):
            return keep_inputs(in_cpp.forward, tensors, options, in_cpp.backward, self.precise)
        if in_triton is not None and backend == "triton" and fused.fits(votes):
            gradients = in_triton.backward, self.precise
            return keep_inputs(in_triton.forward, tensors, options, *gradients)
        on_cpu, has_products = votes.device.type == "cpu", in_triton is None
        eager = self.precise
        if not (on_cpu or has_products):
            eager = functools.partial(run_again, self.precise)
        run = eager
        if backend == "compiled":
            run = functools.partial(run_compiled, self.precise)
        elif backend != "eager" and self.compiling_pays(votes):
            run = functools.partial(run_compiled_or_eager, self.precise, eager)
        if on_cpu:
            return run_in_blocks(run, tensors, self.rows, options)
        return run_again(run, *tensors, **options) if has_products else run(*tensors, **options)

    def compiling_pays(self, votes: Tensor) -> bool:
        """Return whether ``auto`` compiles: for a large call in training, if torch can compile."""
        return (
            votes.numel() >= COMPILE_MINIMUM
            and torch.is_grad_enabled()
            and votes.requires_grad
            and compile_obstacle(votes.device.type) is None
        )


def full_precision(kernel: Kernel) -> Kernel:
    """Return a kernel that runs in fp32 (fp64 for fp64 votes) and returns the votes' dtype.

    Autocast is disabled inside.
    """

    @functools.wraps(kernel)
    def wrapped(votes: Tensor, *tensors: Optional[Tensor], **options: Any) -> Any:
        dtype = compute_dtype(votes)

        def widen(tensor: Optional[Tensor]) -> Optional[Tensor]:
            return tensor if tensor is None or tensor.dtype == torch.bool else tensor.to(dtype)

        with torch.autocast(votes.device.type, enabled=False):
            results = kernel(widen(votes), *[widen(tensor) for tensor in tensors], **options)
        if isinstance(results, tuple):
            return tuple(result.to(votes.dtype) for result in results)
        return results.to(votes.dtype)

    # torch.compile limits the variants of a code object, which all kernels would share.
    function = cast(FunctionType, wrapped)
    name = getattr(kernel, "__name__", "kernel")
    function.__code__ = function.__code__.replace(co_name=f"full_precision_{name}")
    return function


def takes_cpp(backend: str, tensors: Sequence[Optional[Tensor]]) -> bool:
    """Return whether the C++ kernels run this call: ``cpp``, and ``auto`` on a CPU."""
    return backend in ("auto", "cpp") and cpp.covers(*tensors) and is_built("routing")


@functools.cache
def compiled_kernel(kernel: Kernel) -> Kernel:
    """Compile a kernel once per process, with dynamic shapes: one graph for all batch sizes."""
    return torch.compile(kernel, dynamic=True, fullgraph=True)


def run_compiled(kernel: Kernel, *tensors: Any, **options: Any) -> Any:
    """Run a kernel compiled."""
    with explained("compiled", kernel.__name__):
        return compiled_kernel(kernel)(*tensors, **options)


def run_compiled_or_eager(kernel: Kernel, eager: Kernel, *tensors: Any, **options: Any) -> Any:
    """Run a kernel compiled or, after one warning, for ever eagerly."""
    if kernel not in _failed:
        try:
            return run_compiled(kernel, *tensors, **options)
        except BackendError as error:
            _failed.add(kernel)
            warnings.warn(f"{error.failure}; it runs eagerly", stacklevel=2)
    return eager(*tensors, **options)


def run_again(kernel: Kernel, *tensors: Any, **options: Any) -> Any:
    """Run a kernel, and again for its gradients."""
    return keep_inputs(kernel, tensors, options)


def run_in_blocks(
    run: Kernel, tensors: Sequence[Optional[Tensor]], rows: int, options: Dict[str, Any]
) -> Any:
    """Run a kernel on blocks of near-equal size of its first tensors, which have a row a token."""
    votes = cast(Tensor, tensors[0])
    count = votes.size(0)
    blocks = min(count, math.ceil(votes.numel() / BLOCK_SIZE))
    if blocks <= 1:
        return run(*tensors, **options)
    sizes = [count // blocks + (block < count % blocks) for block in range(blocks)]
    split = [[None] * blocks if row is None else row.split(sizes) for row in tensors[:rows]]
    parts = [run(*block, *tensors[rows:], **options) for block in zip(*split)]
    with torch.autocast("cpu", enabled=False):  # torch.cat under autocast refuses fp16
        if isinstance(parts[0], tuple):
            return tuple(torch.cat(results) for results in zip(*parts))
        return torch.cat(parts)
