"""How an operator runs: by a kernel of ours, compiled or eager, in one call or in blocks.

Measured: EM routing, T = 3, D = 1, fp32, forward and backward. CPU milliseconds of one thread of a
shared AMD EPYC, torch 2.13.0, 2026-11-21; median (minimum-maximum) of 10 runs.

===================== ================== ==================
backend               2,048 x 8 x 512    4,096 x 4 x 128
===================== ================== ==================
eager, one call       978 (842-1,090)    120 (95-144)
eager, in blocks      248 (209-289)      92 (81-105)
compiled, one call    250 (216-306)      75 (49-97)
compiled, in blocks   148 (128-164)      37 (34-51)
===================== ================== ==================

Command: ``OMP_NUM_THREADS=1 python -m timeit -v -p -n 1 -r 10 -s SETUP "f()"``, where SETUP is
``import torch; from capsnmt.routing import em_routing; v = torch.randn(2048, 8, 512, 1,
requires_grad=True); z = torch.zeros(512); f = lambda: torch.autograd.grad(em_routing(v, z, z,
backend='eager').sum(), v); f()``; one call: with ``backend.BLOCK_SIZE = 2**62``. The first compiled
call takes 18 CPU seconds (27 s of wall time), or 6 (10 s) with a warm inductor cache on disk.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Set, cast

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from . import cpu
from .fallback import BackendError, Kernel, explained, name_of
from .fused import fits
from .numerics import compute_dtype
from .recording import append_record, is_recording

BACKENDS = ("auto", "eager", "compiled", "cpp", "triton")

OLDEST_TRITON = "3.3"
INTERPRETER_FLAG = "TRITON_INTERPRET"  # Triton's own: kernels run as numpy code, on a CPU

COMPILE_MINIMUM = 2**20
"""Smallest number of votes for which ``auto`` compiles (1,024 tokens x 8 x 128).

A kernel compiles in 9 to 24 s, and again for every combination of masks. At a quarter of this size
a call then saves 0 to 3 ms of 4 to 10: that pays after thousands of updates. EM routing has more
operations and a minimum of its own.
"""

BLOCK_SIZE = 2**19
"""Votes per block on a CPU: 2 MiB in fp32. The temporaries of a block stay in the cache and in
memory that the allocator already holds. Larger ones are mapped again for every operation."""

_failed: Set[Kernel] = set()  # not compiled again where eager code can take over
_backend: ContextVar[str] = ContextVar("capsnmt_routing_backend", default="auto")


def check_backend(name: str, device_type: Optional[str] = None) -> str:
    """Return ``name`` if this backend can run on this machine and, if given, this device type.

    Raises:
        ValueError: the backend is unknown, or this machine cannot build its kernels.
    """
    check_name(name)
    obstacle = backend_obstacle(name, device_type)
    if obstacle:
        raise ValueError(f"routing backend {name!r} {obstacle}: use auto or eager")
    return name


def check_name(name: str) -> None:
    """Raise a ValueError unless there is a backend of this name."""
    if name not in BACKENDS:
        raise ValueError(f"routing backend {name!r} is unknown: use one of {', '.join(BACKENDS)}")


def backend_obstacle(name: str, device_type: Optional[str] = None) -> Optional[str]:
    """Return why a backend cannot run on this machine, None if it can."""
    if name == "compiled":
        return compile_obstacle(device_type or "cpu")
    if name == "triton":
        return triton_obstacle(device_type or "cuda")
    if name == "cpp":
        return cpp_obstacle(device_type or "cpu")
    return None


def usable_backend(name: str, votes: Tensor, training: bool) -> str:
    """Return the backend of a module: in evaluation ``auto`` where this machine lacks its own.

    A trained model keeps the backend of its training, and runs on other machines, too.
    """
    return "auto" if not training and backend_obstacle(name, votes.device.type) else name


@contextmanager
def routing_backend(name: str) -> Iterator[None]:
    """Choose the backend of the operator calls inside the ``with`` block.

    - ``eager``: plain torch.
    - ``compiled``: ``torch.compile``; an error if compilation fails.
    - ``cpp``: the C++ kernels of :mod:`capsnmt.routing.cpu`, on a CPU; an error if they cannot be
      built. What they do not cover (vertical and horizontal routing; votes of another dtype than
      fp32 and bf16) runs as under ``auto``.
    - ``triton``: the kernels of :mod:`capsnmt.routing.fused`, on a GPU; an error if one fails to
      build. What they do not cover (horizontal routing, which consists of matrix products; fp64
      votes; more than 32,768 votes a token) runs as under ``auto``.
    - ``auto`` (default): cpp on a CPU, for calls of any size; if its kernels cannot be built, warn
      once. Otherwise compiled where that pays off, i.e. for large calls in training where torch can
      compile, else eager. If compilation fails, warn once and run eagerly. **D**: not triton
      before its kernels have been compared with the others on a GPU.

    The choice ends with the block and holds for the current thread only. An operator's ``backend``
    argument takes precedence.

    >>> with routing_backend("fast"):
    ...     pass
    Traceback (most recent call last):
    ValueError: routing backend 'fast' is unknown: use one of auto, eager, compiled, cpp, triton
    """
    token = _backend.set(check_backend(name))
    try:
        yield
    finally:
        _backend.reset(token)


@functools.cache
def compile_obstacle(device_type: str) -> Optional[str]:
    """Return why ``torch.compile`` cannot work here for this device type, None if it can."""
    # Before 2.4 dynamic shapes recompile for each batch, and Python 3.12 is not supported.
    if TorchVersion(torch.__version__) < (2, 4):
        return f"needs torch >= 2.4, and this is {torch.__version__}"
    if device_type == "cpu":
        if cpu.compiler() is None:
            return cpu.NO_COMPILER
    elif importlib.util.find_spec("triton") is None:
        return f"needs triton for device type {device_type}, and it is not installed"
    return None


def cpp_obstacle(device_type: str) -> Optional[str]:
    """Return why the C++ kernels cannot run here on this device type, None if they can."""
    if device_type != "cpu":
        return f"needs a CPU, not device type {device_type}"
    return cpu.obstacle()


@functools.cache
def triton_obstacle(device_type: str) -> Optional[str]:
    """Return why Triton kernels cannot run here on this device type, None if they can."""
    if importlib.util.find_spec("triton") is None:
        return f"needs triton >= {OLDEST_TRITON}, and it is not installed"
    import triton

    if TorchVersion(triton.__version__) < OLDEST_TRITON:
        return f"needs triton >= {OLDEST_TRITON}, and this is {triton.__version__}"
    interpreting = os.environ.get(INTERPRETER_FLAG, "0") not in ("", "0")
    if device_type != "cuda" and not (device_type == "cpu" and interpreting):
        return f"needs a GPU, not device type {device_type}"
    return None


def full_precision(kernel: Kernel) -> Kernel:
    """Decorate a kernel to run in fp32 (fp64 for fp64 votes) and return the votes' dtype.

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


def run_operator(
    operator: str,
    kernel: Kernel,
    votes: Tensor,
    *rows: Optional[Tensor],
    shared: Sequence[Tensor] = (),
    cpp: Optional[Kernel] = None,
    fused: Optional[Kernel] = None,
    leading: Sequence[int],
    backend: Optional[str] = None,
    compile_minimum: Optional[int] = None,
    **options: Any,
) -> Any:
    """Run a kernel on the chosen backend and restore the leading dimensions of its results.

    Args:
        operator: the name under which the call is recorded.
        kernel: ``kernel(votes, *rows, *shared, **options, trace=...)``. Its results, a tensor or a
            tuple, have the votes' first dimension; its rows are independent of one another.
        votes: ``[tokens, ...]``.
        rows: tensors per token such as masks, ``[tokens, ...]`` or None.
        shared: tensors shared by all tokens.
        cpp: the kernel of :mod:`capsnmt.routing.cpu` for this operator; None: it has none.
        fused: the kernel of :mod:`capsnmt.routing.fused` for this operator; None: it has none.
        leading: the leading dimensions that were flattened into ``tokens``.
        backend: as for ``routing_backend``; None takes the backend of the enclosing block.
        compile_minimum: smallest number of votes for which ``auto`` compiles; None:
            ``COMPILE_MINIMUM``.
        options: further keyword arguments of the kernel.
    """

    def restore(flat: Tensor) -> Tensor:
        return flat.reshape(*leading, *flat.shape[1:])

    if is_traced():
        results = kernel(votes, *rows, *shared, **options)
    elif is_recording():
        trace: List[Tensor] = []
        results = kernel(votes, *rows, *shared, **options, trace=trace)
        append_record(operator, [restore(C) for C in trace])
    else:
        name = check_backend(_backend.get() if backend is None else backend, votes.device.type)
        if cpp is not None and takes_cpp(name, votes):
            results = cpp(kernel, votes, *rows, *shared, **options)
        else:
            run = choose(name, kernel, fused, votes, compile_minimum)
            results = run_in_blocks(run, (votes, *rows), shared, options)
    return tuple(map(restore, results)) if isinstance(results, tuple) else restore(results)


def is_traced() -> bool:
    """Return whether a caller's ``torch.compile`` or ``torch.export`` records this call.

    What it records serves batches of any size. ``torch.compiler.is_compiling`` would be true in
    every thread while one of them compiles.
    """
    is_compiling = getattr(torch.compiler, "is_dynamo_compiling", bool)  # torch < 2.3 has none
    is_exporting = getattr(torch.compiler, "is_exporting", bool)  # nor has torch < 2.7
    return bool(is_compiling()) or bool(is_exporting())


def takes_cpp(backend: str, votes: Tensor) -> bool:
    """Return whether the C++ kernels run this call: ``cpp``, and ``auto`` on a CPU."""
    if backend not in ("auto", "cpp") or not cpu.covers(votes):
        return False
    obstacle = cpp_obstacle("cpu")
    if obstacle:
        warn_without_cpp(obstacle)
    return not obstacle


@functools.cache
def warn_without_cpp(obstacle: str) -> None:
    """Warn once."""
    warnings.warn(f"routing backend 'cpp' {obstacle}; routing runs more slowly", stacklevel=2)


def choose(
    backend: str,
    kernel: Kernel,
    fused: Optional[Kernel],
    votes: Tensor,
    compile_minimum: Optional[int] = None,
) -> Kernel:
    """Return the function that runs this kernel: fused, compiled or the kernel itself."""
    if backend == "triton" and fused is not None and fits(votes):
        return functools.partial(run_fused, kernel, fused)
    if backend == "compiled":
        return functools.partial(run_compiled, kernel)
    if backend != "eager" and compiling_pays(votes, compile_minimum):
        return functools.partial(run_compiled_or_eager, kernel)
    return kernel


def compiling_pays(votes: Tensor, minimum: Optional[int]) -> bool:
    """Return whether ``auto`` compiles: for a large call in training, where compiling works."""
    return (
        votes.numel() >= (COMPILE_MINIMUM if minimum is None else minimum)
        and torch.is_grad_enabled()
        and votes.requires_grad
        and compile_obstacle(votes.device.type) is None
    )


def run_fused(kernel: Kernel, fused: Kernel, *tensors: Any, **options: Any) -> Any:
    """Run the fused form of a kernel."""
    with explained("triton", name_of(kernel)):
        return fused(*tensors, **options)


@functools.cache
def compiled_kernel(kernel: Kernel) -> Kernel:
    """Compile a kernel once per process, with dynamic shapes: one graph for all batch sizes."""
    return torch.compile(kernel, dynamic=True, fullgraph=True)


def run_compiled(kernel: Kernel, *tensors: Any, **options: Any) -> Any:
    """Run a kernel compiled."""
    with explained("compiled", name_of(kernel)):
        return compiled_kernel(kernel)(*tensors, **options)


def run_compiled_or_eager(kernel: Kernel, *tensors: Any, **options: Any) -> Any:
    """Run a kernel compiled or, after one warning, for ever eagerly."""
    if kernel not in _failed:
        try:
            return run_compiled(kernel, *tensors, **options)
        except BackendError as error:
            _failed.add(kernel)
            warnings.warn(f"{error.failure}; it runs eagerly", stacklevel=2)
    return kernel(*tensors, **options)


def run_in_blocks(
    run: Kernel,
    rows: Sequence[Optional[Tensor]],
    shared: Sequence[Tensor],
    options: Mapping[str, Any],
) -> Any:
    """Run a kernel on blocks of rows of near-equal size on a CPU; in one call on other devices."""
    votes = cast(Tensor, rows[0])
    count = votes.size(0)
    blocks = min(count, math.ceil(votes.numel() / BLOCK_SIZE))
    if votes.device.type != "cpu" or blocks <= 1:
        return run(*rows, *shared, **options)
    sizes = [count // blocks + (block < count % blocks) for block in range(blocks)]
    split = [[None] * blocks if row is None else row.split(sizes) for row in rows]
    parts = [run(*block, *shared, **options) for block in zip(*split)]
    with torch.autocast("cpu", enabled=False):  # torch.cat under autocast refuses fp16
        if isinstance(parts[0], tuple):
            return tuple(torch.cat(results) for results in zip(*parts))
        return torch.cat(parts)
