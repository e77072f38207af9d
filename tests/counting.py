"""What torch does inside a block: the operations that run, and the tensors that are kept."""

from contextlib import contextmanager
from typing import Any, Iterator, List, Tuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# for these a program would have to wait for its GPU
WAITING = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select")


class Operations(TorchDispatchMode):
    """``calls`` are the operations of a block, each with what it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: List[Tuple[Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        self.calls.append((function, result))
        return result

    def count(self, *names: str) -> int:
        """How many of the operations have one of the names."""
        return sum(function.overloadpacket.__name__ in names for function, _ in self.calls)

    def largest(self) -> int:
        """The number of elements of the largest tensor that one of them returned."""
        leaves = [leaf for _, result in self.calls for leaf in tree_leaves(result)]
        return max(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))


@contextmanager
def kept() -> Iterator[List[Tensor]]:
    """The tensors that a block keeps for its backward pass."""
    found: List[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield found
