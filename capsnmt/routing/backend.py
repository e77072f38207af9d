"""The backends of the operators: their names, what each needs, and how one fails."""

import functools
import importlib
import importlib.util
import os
import shutil
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Protocol, Sequence

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from capsnmt.cli import ConfigurationError, shown

from .tracing import is_traced

Function = Callable[..., Any]
Tensors = Sequence[Optional[Tensor]]

BACKENDS = ("auto", "eager", "compiled", "cpp", "triton")
"""How an operator runs; a call or a module chooses.

- ``eager``: plain torch.
- ``compiled``: ``torch.compile``; an error if compilation fails.
- ``cpp``: the C++ kernels of :mod:`capsnmt.fast.cpp`, on a CPU; an error if they cannot be built.
  What they do not cover (vertical and horizontal routing; votes of another dtype than fp32 and
  bf16) runs as under ``auto``.
- ``triton``: the kernels of :mod:`capsnmt.fast.triton`, on a GPU; an error if one fails to build.
  What they do not cover (horizontal routing, which consists of matrix products; fp64 votes; more
  than 32,768 votes a token) runs as under ``auto``.
- ``auto`` (default): cpp on a CPU, for calls of any size; if its kernels cannot be built, warn
  once. Otherwise compiled where that pays off, i.e. for large calls in training where torch can
  compile, else eager. If compilation fails, warn once and run eagerly. **D**: not triton before its
  kernels have been compared with the others on a GPU.
"""

AUTOMATIC = ("cpp",)
"""The backends whose kernels ``auto`` takes."""

SWITCH = "CAPSNMT_FAST"
"""Environment variable: 0 leaves out :mod:`capsnmt.fast`, and all is plain torch."""

NO_COMPILER = "needs a C++ compiler (g++, clang++ or CXX), and none is on the PATH"


class Kernel(Protocol):
    """What computes an operator faster than torch's operations, for some of its calls."""

    @property
    def backend(self) -> str:
        """The backend that it is of: a name in :data:`BACKENDS`."""

    def routes(self, device_type: str, dtype: torch.dtype, shape: Sequence[int]) -> bool:
        """Return whether it routes votes of this dtype, a token's of ``shape [I, N, D]``."""

    def obstacle(self, device_type: str) -> Optional[str]:
        """Return why it cannot run here on this device type, None if it can."""

    def forward(self, *tensors: Any, **options: Any) -> Any:
        """Return the operator's results."""

    def backward(self, g_results: Tensors, *tensors: Any, **options: Any) -> Tensors:
        """Return the gradients of the tensors."""


OBSTACLES: Dict[str, Callable[[str], Optional[str]]] = {}
"""Backend -> the ``obstacle`` of its kernels, of those that have been added."""


def is_fast() -> bool:
    """Return whether :mod:`capsnmt.fast` may be used; a measurement would mistake another word."""
    value = os.environ.get(SWITCH) or "1"
    if value not in ("0", "1"):
        raise ConfigurationError(f"{SWITCH} is {shown(value)}; give 0 for plain torch, or none")
    return value == "1"


@functools.cache
def add_kernels() -> None:
    """Let :mod:`capsnmt.fast` add its kernels: the first call of an operator does, unless traced.

    ``CAPSNMT_FAST=0``, and a package without that folder, is plain torch.
    """
    if is_fast() and importlib.util.find_spec("capsnmt.fast"):
        importlib.import_module("capsnmt.fast").install()


def allows(backend: str, kernel: Kernel) -> bool:
    """Return whether a call on a backend may take a kernel."""
    return kernel.backend == backend or (backend == "auto" and kernel.backend in AUTOMATIC)


def check_backend(name: str, device_type: Optional[str] = None) -> str:
    """Return ``name`` if this backend can run on this machine and, if given, this device type.

    Raises:
        ValueError: the backend is unknown, or this machine cannot build its kernels.
    """
    check_name(name)
    obstacle = backend_obstacle(name, device_type)
    if obstacle:
        raise ValueError(f"routing backend {name!r} {obstacle}; use auto or eager")
    return name


def check_name(name: str) -> None:
    """Raise a ValueError unless there is a backend of this name."""
    if name not in BACKENDS:
        raise ValueError(f"routing backend {name!r} is unknown; use one of {', '.join(BACKENDS)}")


def backend_obstacle(name: str, device_type: Optional[str] = None) -> Optional[str]:
    """Return why a backend cannot run on this machine, None if it can."""
    if name == "compiled":
        return compile_obstacle(device_type or "cpu")
    if name not in ("cpp", "triton"):
        return None
    add_kernels()
    if name not in OBSTACLES:
        return f"needs capsnmt.fast, which {SWITCH}=0 leaves out"
    return OBSTACLES[name](device_type or ("cuda" if name == "triton" else "cpu"))


def usable_backend(name: str, votes: Tensor, training: bool) -> str:
    """Return the backend of a module: in evaluation ``auto`` where this machine lacks its own.

    A trained model keeps the backend of its training, and also runs on other machines. A graph
    finds out by itself, when it chooses an operation.
    """
    here = training or is_traced() or not backend_obstacle(name, votes.device.type)
    return name if here else "auto"


@functools.cache
def compile_obstacle(device_type: str) -> Optional[str]:
    """Return why ``torch.compile`` cannot work here for this device type, None if it can."""
    # Before 2.4 dynamic shapes recompile for each batch, and Python 3.12 is not supported.
    if TorchVersion(torch.__version__) < (2, 4):
        return f"needs torch >= 2.4, and this is {torch.__version__}"
    if device_type == "cpu":
        if compiler() is None:
            return NO_COMPILER
    elif importlib.util.find_spec("triton") is None:
        return f"needs triton for device type {device_type}, and it is not installed"
    return None


def compiler() -> Optional[List[str]]:
    """Return the command of the C++ compiler: CXX, g++ or clang++; None if there is none."""
    for command in (os.environ.get("CXX", "").split(), ["g++"], ["clang++"]):
        if command and shutil.which(command[0]):
            return command
    return None


class BackendError(RuntimeError):
    """A backend has failed; ``failure`` is what happened, the message also what to do."""

    def __init__(self, failure: str) -> None:
        super().__init__(f"{failure}; use auto or eager")
        self.failure = failure


@contextmanager
def explained(backend: str, what: str) -> Iterator[None]:
    """Raise a BackendError for any error inside the block but a lack of memory."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BackendError(f"routing backend {backend!r} failed on {what} ({reason})") from error
