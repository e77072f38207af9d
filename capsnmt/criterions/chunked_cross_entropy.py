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
        ctx.dtypes = features.dtype, weight.dtype
        of_features, of_weight = (gradients and needed for needed in ctx.needs_input_grad[:2])
        # as precise as the features themselves
        d_features = torch.empty_like(features) if of_features else None
        with without_autocast(features.device):
            features, W = features.to(precision), weight.to(precision)
            dtype, words = compute_dtype(features), W.size(0)
            d_weight = torch.zeros_like(W, dtype=dtype) if of_weight else None
            smoothing = epsilon / (words - 1)  # epsilon_i
            confidence = 1.0 - epsilon - smoothing
            sum_of_words = W.sum(0, dtype=dtype)  # sum_v W_v
            sum_of_features = torch.zeros_like(sum_of_words)  # sum h
            loss = features.new_zeros((), dtype=dtype)
            sum_nll = torch.zeros_like(loss)
            correct = torch.zeros((), dtype=torch.long, device=features.device)
            # allocated once: a CPU would map memory again for every chunk, a tenth of the time
            scores = features.new_empty(min(chunk_tokens, len(features)), words)
            for start in range(0, len(target), chunk_tokens):
                tokens = slice(start, start + chunk_tokens)
                h, y = features[tokens], target[tokens].unsqueeze(-1)
                z, real = scores[: len(h)], y.ne(padding_idx)
                torch.mm(h, W.t(), out=z)
                z_y = z.gather(1, y).to(dtype)
                if count_correct:
                    correct = correct + (z.argmax(-1, True).eq(y) & real).sum()
                nll = SHORTCUTS.softmax_(z, y)
                p_y = torch.exp(-nll)
                masked = h.to(dtype) * real
                sum_of_features = sum_of_features + masked.sum(0)
                nll, lse = nll * real, (nll + z_y) * real
                smooth = words * lse - (masked * sum_of_words).sum(-1, keepdim=True)
                sum_nll = sum_nll + nll.sum()
                loss = loss + (confidence * nll + smoothing * smooth).sum()
                if d_features is None and d_weight is None:
                    continue
                # dL/dz without epsilon_i, which is the same for all words and needs no matrix
                d_z, of_words = z, (p_y - confidence).to(z.dtype)
                if z.device.type == "cpu":  # it would scatter them in a copy of all scores
                    d_z[torch.arange(len(z), device="cpu").unsqueeze(1), y] = of_words
                else:
                    d_z.scatter_(1, y, of_words)
                if d_features is not None:
                    d_h = (d_z @ W - smoothing * sum_of_words) * real
                    d_features[tokens] = d_h.to(d_features.dtype)
                if d_weight is not None and d_z.dtype == dtype:
                    torch.addmm(d_weight, d_z.t(), masked, out=d_weight)
                elif d_weight is not None:
                    d_weight += d_z.t() @ masked.to(d_z.dtype)
            if d_weight is not None:
                d_weight -= smoothing * sum_of_features
        ctx.save_for_backward(d_features, d_weight)
        ctx.mark_non_differentiable(sum_nll, correct)
        return loss, sum_nll, correct

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
