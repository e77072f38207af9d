"""Layer dropout (Fan et al. 2020) that replaces dropped layers by the identity."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

import torch.nn as nn
from fairseq.modules import LayerDropModuleList
from torch import Tensor


class IdentityLayerDrop(LayerDropModuleList):
    """fairseq's layer dropout, except that a dropped layer is the identity instead of absent.

    Where the outputs of all layers are read, the output of a dropped layer is its input. Layers are
    drawn exactly as in fairseq.
    """

    def __iter__(self) -> Iterator[Any]:
        kept = {id(layer) for layer in super().__iter__()}
        layers: Any = nn.ModuleList.__iter__(self)
        return (layer if id(layer) in kept else self.skip for layer in layers)

    def skip(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run in place of a dropped layer."""
        raise NotImplementedError


class EncoderLayerDrop(IdentityLayerDrop):
    """Layer dropout for layers that return their output."""

    def skip(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the input."""
        return x


class DecoderLayerDrop(IdentityLayerDrop):
    """Layer dropout for layers that return output, attention weights and state."""

    def skip(self, x: Tensor, *args: Any, **kwargs: Any) -> Tuple[Tensor, None, None]:
        """Return the input, no weights, no state."""
        return x, None, None
