r"""Label-smoothed cross-entropy of a linear projection, one chunk of tokens at a time.

For the features :math:`h` of a token, the projection :math:`W`, the scores :math:`z = W h` of
:math:`V` words and :math:`\epsilon_i = \epsilon / (V - 1)`:

.. math::
    \mathrm{lse} &= \log \sum_v e^{z_v} \\
    \mathrm{nll} &= \mathrm{lse} - z_y \\
    \mathrm{smooth} &= V \, \mathrm{lse} - h \cdot \sum_v W_v \\
    \mathcal{L} &= (1 - \epsilon - \epsilon_i) \, \mathrm{nll} + \epsilon_i \, \mathrm{smooth} \\
    \partial \mathcal{L} / \partial z_v
        &= \mathrm{softmax}_v - (1 - \epsilon - \epsilon_i) [v = y] - \epsilon_i

This is fairseq's ``label_smoothed_nll_loss``. The weights of :math:`\mathrm{lse}` add up to 1, so
the gradient needs the scores of one chunk at a time, and the pass that computes the loss also
computes :math:`\partial \mathcal{L} / \partial h` and :math:`\partial \mathcal{L} / \partial W`.
The scores ``[tokens, V]`` never exist at once, neither here nor in the backward pass.
"""

from typing import Any, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnmt.modules.shortcuts import SHORTCUTS
from capsnmt.routing.numerics import compute_dtype, without_autocast

MULTIPLE = 64
"""In half precision a CPU scores a multiple of this many tokens."""


class ChunkedLoss(NamedTuple):
    """Sums over the tokens that are not padding.

    Attributes:
        loss: the label-smoothed cross-entropy; the only differentiable one.
        nll: the negative log-likelihood.
        correct: the number of tokens whose word has the highest score; 0 if not counted.
    """

    loss: Tensor
    nll: Tensor
    correct: Tensor


def drops_padding(device: torch.device) -> bool:
    """Return whether padding is removed first; a GPU would make the host wait for the number."""
    return device.type == "cpu"


def rows_multiple(precision: torch.dtype) -> int:
    """Return what the number of tokens is a multiple of, once padding is removed.

    **D**: in half precision it is a multiple of 64. oneDNN compiles its products for each number of
    tokens that it meets, which takes longer than the products (docs/loss.md).
    """
    return MULTIPLE if precision.itemsize == 2 else 1


def chunked_cross_entropy(
    features: Tensor,
    weight: Tensor,
    target: Tensor,
    epsilon: float,
    padding_idx: int,
    chunk_tokens: int,
    count_correct: bool = False,
) -> ChunkedLoss:
    """Return the label-smoothed cross-entropy of ``features @ weight.T``, summed over tokens.

    The matrix products have the precision of the projection that they replace: that of autocast
    where it is on, otherwise that of the features. Everything else is at least fp32, including the
    sum of the gradient of ``weight`` over the chunks.

    Args:
        features: ``[..., dim]``, the input of the projection.
        weight: ``[V, dim]``, the projection.
        target: ``[...]``, the words.
        count_correct: whether to count the tokens whose word has the highest score.
    """
    features, target = features.reshape(-1, features.size(-1)), target.reshape(-1)
    precision = F.linear(features[:0], weight[:0]).dtype  # what the projection would return
    if drops_padding(features.device):
        places = target.ne(padding_idx).nonzero().squeeze(1)
        missing = -len(places) % rows_multiple(precision)
        target = F.pad(target[places], (0, missing), value=padding_idx)
        features = features[F.pad(places, (0, missing))]
    settings = (precision, epsilon, padding_idx, chunk_tokens, count_correct)
    gradients = torch.is_grad_enabled()  # a function's context says only of which inputs
    return ChunkedLoss(*_ChunkedCrossEntropy.apply(features, weight, target, *settings, gradients))


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The equations of this module; the forward pass computes the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        target: Tensor,
        precision: torch.dtype,
        epsilon: float,
        padding_idx: int,
        chunk_tokens: int,
        count_correct: bool,
        gradients: bool,
    ) -> Tuple[Tensor, Tensor, Tensor]:
        with without_autocast(features.device):
            chunks = _Chunks(features.to(precision), weight.to(precision), epsilon, chunk_tokens)
            if gradients:
                of_features, of_weight = ctx.needs_input_grad[:2]
                if of_features:  # as precise as the features themselves
                    chunks.d_features = torch.empty_like(features)
                if of_weight:
                    chunks.d_weight = torch.zeros_like(chunks.weight, dtype=chunks.dtype)
            for start in range(0, len(target), chunk_tokens):
                tokens = slice(start, start + chunk_tokens)
                real = target[tokens].ne(padding_idx).unsqueeze(-1)
                chunks.add(tokens, target[tokens].unsqueeze(-1), real, count_correct)
            if chunks.d_weight is not None:
                chunks.d_weight -= chunks.smoothing * chunks.sum_of_features
        ctx.save_for_backward(chunks.d_features, chunks.d_weight)
        ctx.dtypes = features.dtype, weight.dtype
        ctx.mark_non_differentiable(chunks.nll, chunks.correct)
        return chunks.loss, chunks.nll, chunks.correct

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor, *_: Any) -> Tuple[Optional[Tensor], ...]:
        if torch.is_grad_enabled():  # with create_graph
            raise RuntimeError(
                "the loss in chunks has no second derivatives; give --loss-chunk-tokens 0"
            )
        gradients = (
            None if gradient is None else (gradient * d_loss).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes)
        )
        return (*gradients, *[None] * 7)


class _Chunks:
    """The sums over the chunks so far.

    Features ``[tokens, dim]`` and weight ``[V, dim]`` have the precision of the projection.
    """

    def __init__(self, features: Tensor, weight: Tensor, epsilon: float, chunk_tokens: int) -> None:
        self.features, self.weight = features, weight
        self.dtype = compute_dtype(features)
        words = weight.size(0)
        self.smoothing = epsilon / (words - 1)  # epsilon_i
        self.confidence = 1.0 - epsilon - self.smoothing
        self.sum_of_words = weight.sum(0, dtype=self.dtype)  # sum_v W_v
        self.sum_of_features = torch.zeros_like(self.sum_of_words)  # sum h
        self.loss = features.new_zeros((), dtype=self.dtype)
        self.nll = torch.zeros_like(self.loss)
        self.correct = torch.zeros((), dtype=torch.long, device=features.device)
        self.d_features: Optional[Tensor] = None
        self.d_weight: Optional[Tensor] = None
        # allocated once: a CPU would map memory again for every chunk, a tenth of the time
        self.scores = features.new_empty(min(chunk_tokens, len(features)), words)

    def add(self, tokens: slice, target: Tensor, real: Tensor, count_correct: bool) -> None:
        """Add one chunk: words ``[n, 1]`` and, false at padding, ``real`` ``[n, 1]``."""
        features = self.features[tokens]
        scores = self.scores[: len(features)]
        torch.mm(features, self.weight.t(), out=scores)
        of_target = scores.gather(1, target).to(self.dtype)  # z_y
        if count_correct:
            self.correct = self.correct + (scores.argmax(-1, True).eq(target) & real).sum()
        nll = SHORTCUTS.softmax_(scores, target)
        p_target = torch.exp(-nll)
        masked = features.to(self.dtype) * real
        self.sum_of_features = self.sum_of_features + masked.sum(0)
        sum_of_scores = (masked * self.sum_of_words).sum(-1, keepdim=True)
        nll, lse = nll * real, (nll + of_target) * real
        smooth = self.weight.size(0) * lse - sum_of_scores
        self.nll = self.nll + nll.sum()
        self.loss = self.loss + (self.confidence * nll + self.smoothing * smooth).sum()
        if self.d_features is None and self.d_weight is None:
            return
        # dL/dz without epsilon_i, which is the same for all words and needs no matrix
        d_scores, of_words = scores, (p_target - self.confidence).to(scores.dtype)
        if scores.device.type == "cpu":  # it would scatter them in a copy of all scores
            rows = torch.arange(len(scores), device="cpu").unsqueeze(1)
            d_scores[rows, target] = of_words
        else:
            d_scores.scatter_(1, target, of_words)
        if self.d_features is not None:
            d_features = d_scores @ self.weight - self.smoothing * self.sum_of_words
            self.d_features[tokens] = (d_features * real).to(self.d_features.dtype)
        if self.d_weight is not None:
            if d_scores.dtype == self.dtype:
                torch.addmm(self.d_weight, d_scores.t(), masked, out=self.d_weight)
            else:
                self.d_weight += d_scores.t() @ masked.to(d_scores.dtype)
