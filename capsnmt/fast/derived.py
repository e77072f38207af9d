"""Whether tensors are still those of which something was derived that has been kept since."""

from __future__ import annotations

from typing import Any, Iterable, List, Tuple

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

_updates = 0  # of parameters in this process


def count_update(*_: Any) -> None:
    """Note that parameters may have got other numbers, of which their versions do not tell."""
    global _updates
    _updates += 1


def count_updates_of_optimizers() -> None:
    """Count every step of every optimizer: torch's fused ones, and ``.data``, raise no version."""
    register_optimizer_step_post_hook(count_update)


def numbers_of(tensor: Tensor) -> Tuple[int, torch.dtype, int]:
    """Return what changes when a tensor gets other numbers, unless through its ``.data``."""
    version = -1 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), tensor.dtype, version


class Sources:
    """Tensors of which something was derived.

    They and their memory are held: nothing else can get the address of one of them.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.tensors: List[Tensor] = list(tensors)
        self.memory = [tensor.detach() for tensor in self.tensors]  # also after .data has changed
        self.numbers = [numbers_of(tensor) for tensor in self.tensors]
        self.updates = _updates

    def are(self, tensors: Iterable[Tensor]) -> bool:
        """Return whether these are the tensors, with the same numbers."""
        found = list(tensors)
        return (
            self.updates == _updates
            and len(found) == len(self.tensors)
            and all(one is other for one, other in zip(found, self.tensors))
            and self.numbers == [numbers_of(tensor) for tensor in found]
        )
