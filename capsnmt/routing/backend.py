"""The backends of the operators: their names, what each needs, and how one fails."""

from __future__ import annotations

import functools
import importlib.util
import os
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from capsnmt.fast.cpp import build

Kernel = Callable[..., Any]

BACKENDS = ("auto", "eager", "compiled", "cpp", "triton")
"""How an operator runs; a call or a module chooses.

- ``eager``: plain torch.
- ``compiled``: ``torch.compile``; an error if compilation fails.
- ``cpp``: the C++ kernels of :mod:`capsnmt.fast.cpp.routing`, on a CPU; an error if they cannot be
  built. What they do not cover (vertical and horizontal routing; votes of another dtype than fp32
  and bf16) runs as under ``auto``.
- ``triton``: the kernels of :mod:`capsnmt.fast.triton`, on a GPU; an error if one fails to build.
  What they do not cover (horizontal routing, which consists of matrix products; fp64 votes; more
  than 32,768 votes a token) runs as under ``auto``.
- ``auto`` (default): cpp on a CPU, for calls of any size; if its kernels cannot be built, warn
  once. Otherwise compiled where that pays off, i.e. for large calls in training where torch can
  compile, else eager. If compilation fails, warn once and run eagerly. **D**: not triton before its
  kernels have been compared with the others on a GPU.
"""

OLDEST_TRITON = "3.3"
INTERPRETER_FLAG = "TRITON_INTERPRET"  # Triton's own: kernels run as numpy code, on a CPU


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
    if name == "triton":
        return triton_obstacle(device_type or "cuda")
    if name == "cpp":
        return cpp_obstacle(device_type or "cpu")
    return None


def usable_backend(name: str, votes: Tensor, training: bool) -> str:
    """Return the backend of a module: in evaluation ``auto`` where this machine lacks its own.

    A trained model keeps the backend of its training, and also runs on other machines.
    """
    return "auto" if not training and backend_obstacle(name, votes.device.type) else name


@functools.cache
def compile_obstacle(device_type: str) -> Optional[str]:
    """Return why ``torch.compile`` cannot work here for this device type, None if it can."""
    # Before 2.4 dynamic shapes recompile for each batch, and Python 3.12 is not supported.
    if TorchVersion(torch.__version__) < (2, 4):
        return f"needs torch >= 2.4, and this is {torch.__version__}"
    if device_type == "cpu":
        if build.compiler() is None:
            return build.NO_COMPILER
    elif importlib.util.find_spec("triton") is None:
        return f"needs triton for device type {device_type}, and it is not installed"
    return None


def cpp_obstacle(device_type: str) -> Optional[str]:
    """Return why the C++ kernels cannot run here on this device type, None if they can."""
    if device_type != "cpu":
        return f"needs a CPU, not device type {device_type}"
    return build.obstacle()


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
