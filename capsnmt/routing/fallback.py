"""A backend that fails to run a kernel says so in one line."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator

import torch

Kernel = Callable[..., Any]


class BackendError(RuntimeError):
    """A backend has failed; ``failure`` is what happened, the message also what to do."""

    def __init__(self, failure: str) -> None:
        super().__init__(f"{failure}; use auto or eager")
        self.failure = failure


@contextmanager
def explained(backend: str, what: str) -> Iterator[None]:
    """Explain what fails inside the block; a lack of memory is no failure of the backend.

    Args:
        backend: its name.
        what: what it runs.

    Raises:
        BackendError: anything else was raised.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BackendError(f"routing backend {backend!r} failed on {what} ({reason})") from error
