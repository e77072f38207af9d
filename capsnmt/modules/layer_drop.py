"""Layer dropout (Fan et al. 2020) that keeps every layer's place."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

import torch.nn as nn
from fairseq.modules import LayerDropModuleList
from torch import Tensor


class IdentityLayerDrop(LayerDropModuleList):
    """fairseq's layer dropout, but a dropped layer is the identity and not absent.

    Where the outputs of all layers are read, the output of a dropped layer is its input. Which
    layers are dropped is drawn exactly as fairseq draws it.
    """

    def __iter__(self) -> Iterator[Any]:
        kept = {id(layer) for layer in super().__iter__()}
        layers: Any = nn.ModuleList.__iter__(self)
        return (layer if id(layer) in kept else self.skip for layer in layers)

    def skip(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """What runs in place of a dropped layer."""
        raise NotImplementedError


class EncoderLayerDrop(IdentityLayerDrop):
    """For a stack whose layers return their output."""

    def skip(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the input."""
        return x


class DecoderLayerDrop(IdentityLayerDrop):
    """For a stack whose layers return output, attention weights and state."""

    def skip(self, x: Tensor, *args: Any, **kwargs: Any) -> Tuple[Tensor, None, None]:
        """Return the input, no weights, no state."""
        return x, None, None
