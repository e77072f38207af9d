"""What happens when a backend fails to run a kernel: one warning and eager code, or an error."""

from __future__ import annotations

import warnings
from typing import Any, Callable, NamedTuple, Set, Tuple

import torch

Kernel = Callable[..., Any]

_failed: Set[Tuple[str, Kernel]] = set()  # not tried again where eager code can take over


class Attempt(NamedTuple):
    """A kernel that runs on a backend which may fail to build it.

    Attributes:
        backend: the name of the backend.
        kernel: the eager kernel.
        fall_back: on a failure, warn once and run eagerly; else raise.
    """

    backend: str
    kernel: Kernel
    fall_back: bool

    def has_failed(self) -> bool:
        """Return whether an earlier attempt failed and this one would only fall back."""
        return self.fall_back and (self.backend, self.kernel) in _failed

    def __call__(self, run: Callable[[], Any], eager: Callable[[], Any]) -> Any:
        """Return what ``run`` returns or, if it fails and this attempt falls back, ``eager``.

        Raises:
            RuntimeError: ``run`` failed and this attempt does not fall back.
        """
        if self.has_failed():
            return eager()
        try:
            return run()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            name = getattr(self.kernel, "__name__", repr(self.kernel))
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            failure = f"routing backend {self.backend!r} failed on {name} ({reason})"
            if not self.fall_back:
                raise RuntimeError(f"{failure}: use auto or eager") from error
            _failed.add((self.backend, self.kernel))
            warnings.warn(f"{failure}; it runs eagerly", stacklevel=2)
            return eager()
