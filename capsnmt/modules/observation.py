"""Observation of attentions: what reads values, weights and heads during a forward pass."""

from contextlib import contextmanager
from contextvars import ContextVar
from typing import AbstractSet, Iterator, Optional, TypeVar

from torch import Tensor

from capsnmt.routing.tracing import is_traced


class AttentionObserver:
    """What attentions call during a forward pass, one call per layer, from the bottom.

    Attributes:
        roles: the attentions that call it: ``enc-self``, ``enc-dec``, ``dec-self``.
        reads_weights: whether it needs the weights, which the fused attention does not return.
    """

    roles: AbstractSet[str]
    reads_weights: bool

    def add(self, role: str, values: Tensor, weights: Optional[Tensor], heads: Tensor) -> None:
        """Take what one attention has computed.

        Args:
            role: ``enc-self``, ``enc-dec`` or ``dec-self``.
            values: V, ``[B, H, K, d_h]``.
            weights: A, ``[B, H, L, K]``, before dropout and before heads mix them; ``None`` unless
                ``reads_weights``.
            heads: O, ``[B, H, L, d_h]``.
        """
        raise NotImplementedError


_Observer = TypeVar("_Observer", bound=AttentionObserver)
_open: ContextVar[Optional[AttentionObserver]] = ContextVar(
    "capsnmt_attention_observer", default=None
)


@contextmanager
def observe_attentions(observer: _Observer) -> Iterator[_Observer]:
    """Let the attentions of the observer's roles call it inside the ``with`` block."""
    token = _open.set(observer)
    try:
        yield observer
    finally:
        _open.reset(token)


def open_observer(role: Optional[str] = None) -> Optional[AttentionObserver]:
    """Return the observer of the innermost open block, if there is one, and of this role."""
    observer = None if is_traced() else _open.get()  # what is recorded observes nothing
    of_another = role is not None and observer is not None and role not in observer.roles
    return None if of_another else observer
