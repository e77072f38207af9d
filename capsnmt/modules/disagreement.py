"""Disagreement of attention heads (Li et al. 2021, section 3.1), measured in the attention.

With two rivals, of Yun, Kang and Jung 2021 (Analyzing and Controlling Inter-Head Diversity in
Multi-Head Attention, Applied Sciences 11(4):1548): orthogonality and independence of the heads.
"""

import math
from typing import Collection, ContextManager, Dict, FrozenSet, List, Optional, Set, Tuple, cast

import torch
from torch import Tensor

from capsnmt.modules.observation import AttentionObserver, observe_attentions
from capsnmt.routing.numerics import compute_dtype, without_autocast

TERMS = ("subspace", "position", "output", "orthogonality", "hsic")

# Shorter vectors count as having no direction, because the gradient of a cosine grows with the
# inverse of the length. The value is torch's for cosine_similarity; nonzero fp16 numbers are above.
LENGTH_FLOOR = 1e-8


def unit(x: Tensor) -> Tensor:
    """Return vectors ``[..., d_h]`` divided by their length, at least in fp32."""
    x = x.to(compute_dtype(x))
    length = x.norm(dim=-1, keepdim=True)
    return x / length.masked_fill(length < LENGTH_FLOOR, math.inf)


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
    return unit(x).mean(dim=1).square().sum(-1)


def mean_squared_cosine(x: Tensor) -> Tensor:
    r"""Return the mean squared cosine over all pairs of heads, ``[B, L]``, for ``[B, H, L, d_h]``.

    .. math::
        \frac{1}{H^2} \sum_{i,j} \cos^2(x_i, x_j) = \frac{1}{H^2} \|X X^\top\|_F^2
        = \frac{1}{H^2} \|X^\top X\|_F^2

    with the rows :math:`x_i / |x_i|` of X (orthogonality; Yun et al. 2021): 1/H where all heads are
    orthogonal, 1 where all are parallel or opposite, which :func:`mean_cosine` takes for diverse.
    The smaller product is computed, :math:`O(H d_h \min(H, d_h))`. It differs by the constant 1/H
    from :math:`\|X X^\top - I\|_F^2 / H^2`.

    **D**: x are the outputs of the heads at one position, as for ``output``.

    >>> mean_squared_cosine(torch.tensor([[[[1.0, 0.0]], [[-2.0, 0.0]]]]))  # two opposite heads
    tensor([[1.]])
    """
    heads, width = x.size(1), x.size(3)
    x = unit(x).transpose(1, 2)
    with without_autocast(x.device):
        gram = x @ x.mT if heads <= width else x.mT @ x
    return gram.square().sum((-2, -1)) / heads**2


def mean_dependence(x: Tensor, real: Optional[Tensor] = None) -> Tensor:
    r"""Return the mean dependence of all pairs of heads, ``[B, L]``, for ``[B, H, L, d_h]``.

    .. math::
        \mathrm{HSIC}(X_i, X_j) = \frac{\operatorname{tr}(K_i C K_j C)}{(n - 1)^2}, \qquad
        \frac{1}{H^2} \sum_{i,j} \frac{\mathrm{HSIC}(X_i, X_j)}
        {\sqrt{\mathrm{HSIC}(X_i, X_i) \, \mathrm{HSIC}(X_j, X_j)}}
        = \frac{1}{H^2} \Bigl\| \sum_i \frac{C K_i C}{\|C K_i C\|_F} \Bigr\|_F^2

    :math:`K_i = X_i X_i^\top` is the linear kernel of the n positions of a sentence in head i and
    :math:`C = I - 1/n` centres it (Hilbert-Schmidt independence criterion, Gretton et al. 2005;
    between heads, Yun et al. 2021). The right side needs no pairs: :math:`O(H n^2 d_h)`.

    **D**: the criterion is normalised (Kornblith et al. 2019), as in the measure of the same paper.
    As it stands it grows with the fourth power of the heads' size: smaller heads, which W^O makes
    up for, would be its minimum, and no one weight would suit it and the other terms.

    **D**: X are the outputs of the heads. The n positions are those of one sentence, so that the
    term does not depend on the batch; a sentence counts by its tokens.

    Args:
        real: ``[B, L]``, false at padding, which is left out; None: there is none.

    >>> x = torch.tensor([[[[1.0], [2.0], [4.0]], [[1.0], [-2.0], [1.0]]]])  # H = 2, L = 3
    >>> mean_dependence(x)  # (2 + 2 / 28) / 4
    tensor([[0.5179, 0.5179, 0.5179]])
    """
    x = x.to(compute_dtype(x))
    if real is None:
        x = x - x.mean(dim=2, keepdim=True)
    else:
        kept = real[:, None, :, None].to(x)
        x = (x - (x * kept).sum(2, keepdim=True) / kept.sum(2, keepdim=True).clamp(min=1)) * kept
    x = unit(x.flatten(2)).view_as(x)  # the square of a small number would vanish
    with without_autocast(x.device):
        gram = x @ x.mT
    return mean_cosine(gram.flatten(2).unsqueeze(2)).expand(-1, x.size(2))


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

    Args:
        terms: of ``TERMS``.
        roles: of ``enc-self``, ``enc-dec`` and ``dec-self``.
        source: ``[B, S]``, true at the real tokens of the source; None: all are.
        target: ``[B, T]``, true at the real tokens of the decoder's input; None: all are.

    Raises:
        ValueError: a term is unknown.
    """

    def __init__(
        self,
        terms: Collection[str],
        roles: Collection[str],
        source: Optional[Tensor] = None,
        target: Optional[Tensor] = None,
    ) -> None:
        for term in sorted({*terms} - {*TERMS}):
            raise ValueError(f"term {term!r} is unknown; choose from {', '.join(TERMS)}")
        self.terms: FrozenSet[str] = frozenset(terms)
        self.roles: FrozenSet[str] = frozenset(roles)
        self.source, self.target = source, target
        self.reads_weights = "position" in self.terms
        self.values: Dict[Tuple[str, str], List[Tensor]] = {}
        self.learning: Set[str] = set()

    def add(self, role: str, values: Tensor, weights: Optional[Tensor], heads: Tensor) -> None:
        """Measure the chosen terms of one attention; only ``position`` needs the weights."""
        # without gradients it is a teacher's pass, or a translation, beside the one that learns
        if not torch.is_grad_enabled() and self.learning:
            return
        if torch.is_grad_enabled() and role not in self.learning:
            self.values = {key: found for key, found in self.values.items() if key[0] != role}
            self.learning.add(role)
        real = self.source if role == "enc-self" else self.target
        measures = {
            "subspace": lambda: mean_cosine(values),
            "position": lambda: mean_overlap(cast(Tensor, weights)),
            "output": lambda: mean_cosine(heads),
            "orthogonality": lambda: mean_squared_cosine(heads),
            "hsic": lambda: mean_dependence(heads, real),
        }
        for term in TERMS:  # in this order, for gradients that are added the same each time
            if term in self.terms:
                self.values.setdefault((role, term), []).append(measures[term]())

    def again(self) -> "DisagreementRecord":
        """Return an empty record of the same terms, attentions and tokens."""
        return DisagreementRecord(self.terms, self.roles, self.source, self.target)

    def mean(self, role: str, term: str) -> Optional[Tensor]:
        """Return a term's mean over layers and real tokens, ``None`` if no layer ran.

        **D**: the mean is over the tokens of the batch, not over means per sentence: every token
        counts the same, as in the likelihood.

        Args:
            role: ``enc-self``, ``enc-dec`` or ``dec-self``.
            term: one of ``TERMS``.
        """
        layers = self.values.get((role, term))
        if not layers:
            return None
        measured = torch.stack(layers).mean(dim=0)
        of_source = role == "enc-self" or (role == "enc-dec" and term == "subspace")
        real = self.source if of_source else self.target
        if real is None:
            return measured.mean()
        if measured.size(1) > real.size(1):  # --cross-self-attention: source keys, then target's
            assert self.source is not None
            real = torch.cat([self.source, real], dim=1)
        return (measured * real).sum() / real.sum().clamp(min=1)


def record_disagreement(
    terms: Collection[str],
    roles: Collection[str],
    source: Optional[Tensor] = None,
    target: Optional[Tensor] = None,
) -> ContextManager[DisagreementRecord]:
    """Measure the terms in every attention of these roles inside the ``with`` block.

    The arguments are those of :class:`DisagreementRecord`.

    >>> from capsnmt.modules.attention import Attention
    >>> attention = Attention(8, num_heads=2)
    >>> attention.role = "enc-self"
    >>> with record_disagreement(["output"], ["enc-self"]) as record:
    ...     output, _ = attention(torch.randn(5, 3, 8))  # L = 5, B = 3
    >>> record.values["enc-self", "output"][0].shape  # differentiable: add it to the loss
    torch.Size([3, 5])
    """
    return observe_attentions(DisagreementRecord(terms, roles, source, target))
