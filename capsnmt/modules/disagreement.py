"""Disagreement of attention heads (Li et al. 2021, section 3.1), measured in the attention."""

from __future__ import annotations

import math
from typing import Collection, ContextManager, Dict, FrozenSet, List, Optional, Tuple

import torch
from torch import Tensor

from capsnmt.modules.observation import AttentionObserver, observe_attentions
from capsnmt.routing.numerics import compute_dtype

TERMS = ("subspace", "position", "output")

# Shorter vectors count as having no direction, because the gradient of a cosine grows with the
# inverse of the length. The value is torch's for cosine_similarity; nonzero fp16 numbers are above.
LENGTH_FLOOR = 1e-8


def mean_cosine(x: Tensor) -> Tensor:
    r"""Return the mean cosine over all pairs of heads, ``[B, L]``, for ``[B, H, L, d_h]``.

    .. math::
        \frac{1}{H^2} \sum_{i,j} \cos(x_i, x_j)
        = \frac{1}{H^2} \Bigl| \sum_i \frac{x_i}{|x_i|} \Bigr|^2

    (eq. 5 and 7 of Li et al. 2021, with the sign of a loss); it is within [0, 1]. The right side
    needs no pairs and costs O(H) instead of O(H^2).

    **D**: the cosine with a vector shorter than ``LENGTH_FLOOR`` is 0, and the vector gets no
    gradient.

    >>> mean_cosine(torch.tensor([[[[1.0, 0.0]], [[0.0, 2.0]]]]))  # two orthogonal heads
    tensor([[0.5000]])
    """
    x = x.to(compute_dtype(x))
    length = x.norm(dim=-1, keepdim=True)
    x = x / length.masked_fill(length < LENGTH_FLOOR, math.inf)
    return x.mean(dim=1).square().sum(-1)


def mean_overlap(weights: Tensor) -> Tensor:
    r"""Return the mean overlap of attention weights over all pairs of heads, ``[B, L]``.

    .. math::
        \frac{1}{H^2} \sum_{i,j} \sum_k A_i[k] A_j[k] = \frac{1}{H^2} \Bigl| \sum_i A_i \Bigr|^2

    (eq. 6 with the sign of a loss, per query). It is 1 where all heads attend to one same key.

    Args:
        weights: A, ``[B, H, L, K]``.
    """
    return weights.to(compute_dtype(weights)).mean(dim=1).square().sum(-1)


class DisagreementRecord(AttentionObserver):
    """The terms measured by the attentions of one forward pass.

    ``values[role, term]`` holds one tensor ``[B, positions]`` per layer that ran, from the bottom:
    ``subspace`` by key position, the others by query position, padding included.

    **D**: the heads are those of the attention call: with multi-layer attention, H heads (M-00 and
    M-01, whose sources share their weights) or n H (M-10 and M-11).
    """

    def __init__(self, terms: Collection[str], roles: Collection[str]) -> None:
        self.terms: FrozenSet[str] = frozenset(terms)
        self.roles: FrozenSet[str] = frozenset(roles)
        self.reads_weights = "position" in self.terms
        self.values: Dict[Tuple[str, str], List[Tensor]] = {}

    def add(self, role: str, values: Tensor, weights: Optional[Tensor], heads: Tensor) -> None:
        """Measure the chosen terms of one attention; only ``position`` needs the weights."""
        if "subspace" in self.terms:
            self.append(role, "subspace", mean_cosine(values))
        if "position" in self.terms:
            assert weights is not None
            self.append(role, "position", mean_overlap(weights))
        if "output" in self.terms:
            self.append(role, "output", mean_cosine(heads))

    def append(self, role: str, term: str, value: Tensor) -> None:
        """Append the measurement of the next layer."""
        self.values.setdefault((role, term), []).append(value)

    def mean(self, role: str, term: str, source: Tensor, target: Tensor) -> Optional[Tensor]:
        """Return a term's mean over layers and real positions, ``None`` if no layer ran.

        **D**: the mean is over the tokens of the batch, not over means per sentence: every token
        counts the same, as in the likelihood.

        Args:
            role: ``enc-self``, ``enc-dec`` or ``dec-self``.
            term: one of ``TERMS``.
            source: ``[B, S]``, true at the real tokens of the source.
            target: ``[B, T]``, true at the real tokens of the decoder's input.
        """
        layers = self.values.get((role, term))
        if not layers:
            return None
        measured = torch.stack(layers).mean(dim=0)
        of_source = role == "enc-self" or (role == "enc-dec" and term == "subspace")
        real = source if of_source else target
        if measured.size(1) > real.size(1):  # --cross-self-attention: source keys, then target's
            real = torch.cat([source, target], dim=1)
        return (measured * real).sum() / real.sum().clamp(min=1)


def record_disagreement(
    terms: Collection[str], roles: Collection[str]
) -> ContextManager[DisagreementRecord]:
    """Measure the terms in every attention of these roles inside the ``with`` block.

    >>> from capsnmt.modules.attention import Attention
    >>> attention = Attention(8, num_heads=2)
    >>> attention.role = "enc-self"
    >>> with record_disagreement(["output"], ["enc-self"]) as record:
    ...     output, _ = attention(torch.randn(5, 3, 8))  # L = 5, B = 3
    >>> record.values["enc-self", "output"][0].shape  # differentiable: add it to the loss
    torch.Size([3, 5])
    """
    return observe_attentions(DisagreementRecord(terms, roles))
