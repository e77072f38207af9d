"""Dropout of the modules."""

from torch import Tensor, nn

from .shortcuts import SHORTCUTS


class Dropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014), which :mod:`capsnmt.fast` draws faster on a CPU.

    >>> import torch
    >>> kept = Dropout(0.5)(torch.ones(1000))
    >>> kept.unique()
    tensor([0., 2.])
    """

    def rate(self) -> float:
        """Return the probability with which a feature is dropped now."""
        return float(self.p) if self.training else 0.0

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drop features of ``x`` in training; ``inplace`` is fairseq's, and saves nothing here."""
        p = self.rate()
        return x if p == 0 else SHORTCUTS.dropout(x, p)
