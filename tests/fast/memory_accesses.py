"""The memory that kernels read and write, element by element, in Triton's interpreter."""

import contextlib
from typing import Any, Dict, Iterator, List, Set, Tuple

import numpy as np
import pytest
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime import interpreter


class Accesses:
    """The programs of one launch: which may reach what, and which wrote what."""

    def __init__(self, tensors: List[Tensor]) -> None:
        self.spans: List[Tuple[int, int]] = [
            (x.data_ptr(), x.data_ptr() + x.numel() * x.element_size()) for x in tensors
        ]
        self.writers: Dict[int, Any] = {}

    def check(self, pointers: Any, mask: Any, program: Any, writes: bool) -> None:
        """Fail where an address is in no tensor of the launch, or of another program's results."""
        size = pointers.get_element_ty().primitive_bitwidth // 8
        assert mask.data.dtype == bool, "a mask of numbers, which Triton 3.9 refuses"
        reached = pointers.data[mask.data].astype(np.int64)
        inside = np.zeros(reached.shape, dtype=bool)
        for start, end in self.spans:
            inside |= (reached >= start) & (reached + size <= end)
        assert inside.all(), "a kernel reaches outside of its tensors"
        for address in reached.tolist():
            writer = self.writers.get(address, program)
            assert writer == program, f"programs {writer} and {program} share a result"
            if writes:
                self.writers[address] = program


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Check each access of the kernels that the interpreter runs inside the block."""
    builder = type(interpreter.interpreter_builder)
    launch, load, store = (
        interpreter.GridExecutor.__call__,
        builder.create_masked_load,
        builder.create_masked_store,
    )
    current: List[Accesses] = []
    prepared: Set[Any] = set()

    def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        current[:] = [Accesses(tensors)]
        prepared.clear()
        return launch(self, *args, **kwargs)

    def loads(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        current[0].check(pointers, mask, self.grid_idx, writes=False)
        return load(self, pointers, mask, *rest)

    def stores(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        current[0].check(pointers, mask, self.grid_idx, writes=True)
        return store(self, pointers, value, mask, *rest)

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Triton prepares a function at each call, most of the time. The next launch undoes it.
        if self.fn not in prepared:
            prepared.add(self.fn)
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.GridExecutor, "__call__", launched)
        patch.setattr(builder, "create_masked_load", loads)
        patch.setattr(builder, "create_masked_store", stores)
        patch.setattr(interpreter.InterpretedFunction, "__call__", called)
        yield


@triton.jit
def copy_kernel(source, target, read, written, BLOCK: tl.constexpr):
    """Copy ``written`` elements, and read ``read``; every program does the same."""
    place = tl.arange(0, BLOCK)
    copied = tl.load(source + place, mask=place < read)
    tl.store(target + place, copied, mask=place < written)
