"""Resume runs of fairseq's criterion or optimizer with our equivalent, and the reverse."""

from __future__ import annotations

from typing import Callable, Type, TypeVar

T = TypeVar("T", bound=type)


def resumes_from(original: Type) -> Callable[[T], T]:
    """Allow runs of a class and of fairseq's original to resume from each other's checkpoints.

    Both have the same numbers and the same state in a checkpoint. fairseq refuses to resume if the
    names of the classes of criterion and optimizer differ from those in the checkpoint. It also
    refuses to register two classes of one name, so ours takes the name after its registration.
    """

    def rename(cls: T) -> T:
        cls.__name__ = original.__name__
        return cls

    return rename
