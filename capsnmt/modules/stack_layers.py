"""The list of a stack's layers: layer dropout by the identity, and connections between layers."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Optional, Tuple

import torch.nn as nn
from fairseq.modules import LayerDropModuleList
from torch import Tensor

from capsnmt.errors import ConfigurationError
from capsnmt.modules.layer_aggregation import LayerConnection


class StackLayers(LayerDropModuleList):
    """fairseq's layers with layer dropout (Fan et al. 2020), except for two differences.

    A dropped layer is the identity instead of absent: where the outputs of all layers are read, the
    output of a dropped layer is its input. Layers are drawn exactly as in fairseq.

    The layers of a forward pass may be connected, so that each reads the outputs of all below it.

    Args:
        p: probability of dropping a layer; with 0, nothing is drawn.
        layers: the layers.
        connection: of the stack, which owns it: a module of this list would count as a layer.
    """

    def __init__(
        self,
        p: float,
        layers: Iterable[nn.Module],
        connection: Optional[LayerConnection] = None,
    ) -> None:
        super().__init__(p, layers)
        self.connect = None if connection is None else connection.connect

    def __iter__(self) -> Iterator[Any]:
        layers: Any = nn.ModuleList.__iter__(self)
        if self.p > 0:
            kept = {id(layer) for layer in super().__iter__()}
            layers = (layer if id(layer) in kept else self.skip for layer in layers)
        return layers if self.connect is None else self.connect(layers)

    def __prepare_scriptable__(self) -> StackLayers:
        """Refuse ``torch.jit.script`` of a stack alone: it would run the bare layers."""
        if self.connect is not None:
            raise ConfigurationError(
                "torch.jit.script: a stack with --layer-aggregation dlcl or dense is scripted as a "
                "part of its model: script the model, or use torch.jit.trace"
            )
        return self

    def skip(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Run in place of a dropped layer."""
        raise NotImplementedError


class EncoderLayers(StackLayers):
    """Layers that return their output."""

    def skip(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the input."""
        return x


class DecoderLayers(StackLayers):
    """Layers that return output, attention weights and state."""

    def skip(self, x: Tensor, *args: Any, **kwargs: Any) -> Tuple[Tensor, None, None]:
        """Return the input, no weights, no state."""
        return x, None, None
