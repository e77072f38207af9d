"""The C++ kernels, built at first use for the processor of this machine.

A build needs a compiler and no header of torch, and takes a few seconds. Its name is a hash of the
source, the flags, the C library and the macros that the compiler defines with them, which name its
version and the instructions of the processor. So machines may share a cache, and an update builds
again.
"""

import ctypes
import functools
import hashlib
import os
import platform
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any, Optional, Sequence

import torch

from capsnmt.routing.backend import NO_COMPILER, compiler

HERE = Path(__file__).parent
PRECISIONS = (torch.float32, torch.bfloat16)  # that the kernels read

# -ffast-math, which is Intel's default, would fold the exponential's rounding away. No number is
# tested for -0, errno or a trap. Without contraction to fused operations the loops are 30 % slower.
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fno-fast-math", "-ffp-contract=fast"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
    *("-fno-exceptions", "-fno-rtti", "-fopenmp", "-fPIC", "-shared"),
)


@functools.cache
def is_built(name: str) -> bool:
    """Return whether the kernels can run on this machine, and warn once if not."""
    reason = obstacle(name)
    if reason is not None:
        warnings.warn(f"{name} by C++ {reason}; it runs more slowly", stacklevel=2)
    return reason is None


@functools.cache
def obstacle(name: str = "routing") -> Optional[str]:
    """Return why the kernels cannot run on this machine, None if they can; it builds them."""
    try:
        library(name)
    except (OSError, RuntimeError, KeyError) as error:  # the last two: a user without a home
        return str(error)
    return None


@functools.cache
def library(name: str = "routing") -> ctypes.CDLL:
    """Return the kernels of NAME.cpp; build them unless this machine's build is in the cache.

    Processes may build at the same time: each writes a file of its own, and the first renames it.

    Raises:
        OSError: there is no compiler or it fails, or the cache cannot be written or loaded from.
    """
    command = compiler()
    if command is None:
        raise OSError(NO_COMPILER)
    source = HERE / f"{name}.cpp"
    macros = run([*command, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull])
    sources = [path.read_text() for path in (source, *sorted(HERE.glob("*.h")))]
    parts = [*command, *FLAGS, macros, *platform.libc_ver(), *sources]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = cache / "capsnmt" / f"{name}-{key[:32]}.so"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            fresh = Path(folder) / built.name
            run([*command, *FLAGS, str(source), "-o", str(fresh)])
            with fresh.open("rb") as file:
                os.fsync(file.fileno())  # after a crash it is whole, or not there
            if not built.exists():  # of NFS, another node would lose the one that it runs
                os.replace(fresh, built)
    return ctypes.CDLL(str(built))


@functools.cache
def kernel(library_name: str, name: str, *types: Any, integers: int) -> Any:
    """Return a function of a library, whose arguments are of these types, then integers.

    Integers are 64 bits wide, and so are addresses.
    """
    function = getattr(library(library_name), name)
    function.argtypes = [*types, *[ctypes.c_int64] * integers]
    return function


def run(command: Sequence[str]) -> str:
    """Run a compiler and return what it prints."""
    result = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line]
        reason = (errors or result.stderr.splitlines() or ["no message"])[0]
        raise OSError(f"cannot be built: {command[0]} failed ({reason.strip()})")
    return result.stdout
