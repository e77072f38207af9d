"""How an operator runs: by a kernel, compiled or eager, in one call or in blocks."""

import functools
import math
import warnings
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Dict, List, Optional, Sequence, Set, cast

import torch
from torch import Tensor

from . import in_graph
from .backend import (
    OBSTACLES,
    BackendError,
    Function,
    Kernel,
    add_kernels,
    allows,
    check_backend,
    compile_obstacle,
    explained,
)
from .checks import check_iterations
from .inputs_kept import keep_inputs
from .numerics import compute_dtype, rounded, without_autocast
from .recording import RoutingRecord, open_records
from .tracing import is_traced, is_watched

COMPILE_MINIMUM = 2**20
"""Smallest number of votes for which ``auto`` compiles (1,024 tokens x 8 x 128).

A kernel compiles in 9 to 24 s, and again for every combination of masks. At a quarter of this size
a call then saves 0 to 3 ms of 4 to 10: that pays after thousands of updates.
"""

BLOCK_SIZE = 2**19
"""Votes per block on a CPU: 2 MiB in fp32. The temporaries of a block stay in the cache and in
memory that the allocator already holds. Larger ones are mapped again for every operation."""

_failed: Set[Function] = set()  # not compiled again where eager code can take over


@dataclass
class Operator:
    """An operator in plain torch, and what runs it faster.

    Attributes:
        name: the name under which its calls are recorded.
        function: ``function(votes, *others, **options, trace=...)``, for votes ``[tokens, ...]``.
            Its results, a tensor or a tuple, have one row for each token, and the rows are
            independent of one another.
        rows: how many of its tensors have a row for each token: the votes, masks. All tokens share
            the others. Each may be None but the votes.
        has_products: it consists of matrix products, whose results a compiled graph keeps.
        kernels: what computes it faster, in the order in which a call looks for one.
        precise: the function in fp32 or better.
    """

    name: str
    function: Function
    rows: int
    has_products: bool = False
    kernels: List[Kernel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.precise = full_precision(self.function)

    def add(self, kernel: Kernel) -> None:
        """Let calls take a kernel that routes them, after those that have been added before."""
        self.kernels.append(kernel)
        in_graph.register(self.name, kernel, self.precise)
        OBSTACLES[kernel.backend] = kernel.obstacle

    def __call__(
        self, votes: Tensor, *others: Optional[Tensor], backend: str, **options: Any
    ) -> Any:
        """Run it with its other tensors and options on the chosen backend.

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
            operation = in_graph.operation_for(self.name, backend, tensors)
            results = (self.precise if operation is None else operation)(*tensors, **options)
        elif (records := open_records()) is not None:
            trace: List[Tensor] = []
            results = self.precise(*tensors, **options, trace=trace)
            records.append(RoutingRecord(self.name, [restore(C) for C in trace]))
        else:
            add_kernels()
            name = check_backend(backend, votes.device.type)
            results = self.run(name, tensors, options)
        return tuple(map(restore, results)) if isinstance(results, tuple) else restore(results)

    def run(
        self, backend: str, tensors: Sequence[Optional[Tensor]], options: Dict[str, Any]
    ) -> Any:
        """Run it on a backend that this machine has: by the first kernel that covers the call.

        **D**: without a kernel, autograd would keep up to 12 tensors of the votes' size for
        EM routing. On a GPU they are computed again from the votes: eagerly by :func:`keep_inputs`;
        compiled, by inductor, except for the matrix products of horizontal routing. A CPU keeps
        them: it has more memory, and less time.
        """
        votes = cast(Tensor, tensors[0])
        kind = votes.device.type, votes.dtype, votes.shape[1:]
        if is_watched(tensors):  # the compiler would fail there, and not be asked again
            backend = "eager"
        for kernel in self.kernels:
            if allows(backend, kernel) and kernel.routes(*kind):
                return keep_inputs(kernel.forward, tensors, options, kernel.backward, self.precise)
        on_cpu = votes.device.type == "cpu"
        eager = self.precise
        if not (on_cpu or self.has_products):
            eager = functools.partial(run_again, self.precise)
        run = eager
        if backend == "compiled":
            run = functools.partial(run_compiled, self.precise)
        elif (
            backend != "eager"
            and votes.numel() >= COMPILE_MINIMUM  # it pays for a large call in training
            and torch.is_grad_enabled()
            and votes.requires_grad
            and compile_obstacle(votes.device.type) is None
        ):
            run = functools.partial(run_compiled_or_eager, self.precise, eager)
        if on_cpu:
            return run_in_blocks(run, tensors, self.rows, options)
        run_whole = functools.partial(run_again, run) if self.has_products else run
        return run_whole(*tensors, **options)


def full_precision(function: Function) -> Function:
    """Return a function that runs in fp32 (fp64 for fp64 votes) and returns the votes' dtype.

    Autocast is disabled inside.
    """

    @functools.wraps(function)
    def wrapped(votes: Tensor, *tensors: Optional[Tensor], **options: Any) -> Any:
        dtype = compute_dtype(votes)

        def widen(tensor: Optional[Tensor]) -> Optional[Tensor]:
            return tensor if tensor is None or tensor.dtype == torch.bool else tensor.to(dtype)

        with without_autocast(votes.device):
            results = function(widen(votes), *[widen(tensor) for tensor in tensors], **options)
        if isinstance(results, tuple):
            return tuple(rounded(result, votes.dtype) for result in results)
        return rounded(results, votes.dtype)

    # torch.compile limits the variants of a code object, which all operators would share.
    own = cast(FunctionType, wrapped)
    own.__code__ = own.__code__.replace(co_name=f"full_precision_{function.__name__}")
    return own


@functools.cache
def compiled_function(function: Function) -> Function:
    """Compile a function once per process, with dynamic shapes: one graph for all batch sizes."""
    return torch.compile(function, dynamic=True, fullgraph=True)


def run_compiled(function: Function, *tensors: Any, **options: Any) -> Any:
    """Run a function compiled."""
    with explained("compiled", function.__name__):
        return compiled_function(function)(*tensors, **options)


def run_compiled_or_eager(
    function: Function, eager: Function, *tensors: Any, **options: Any
) -> Any:
    """Run a function compiled or, after one warning, for ever eagerly."""
    if function not in _failed:
        try:
            return run_compiled(function, *tensors, **options)
        except BackendError as error:
            _failed.add(function)
            warnings.warn(f"{error.failure}; it runs eagerly", stacklevel=2)
    return eager(*tensors, **options)


def run_again(function: Function, *tensors: Any, **options: Any) -> Any:
    """Run a function, and again for its gradients."""
    return keep_inputs(function, tensors, options)


def run_in_blocks(
    run: Function, tensors: Sequence[Optional[Tensor]], rows: int, options: Dict[str, Any]
) -> Any:
    """Run a function on blocks, of near-equal size, of the tensors that have a row a token."""
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
