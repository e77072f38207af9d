"""Connected layers in TorchScript, which cannot iterate over a stack as Python does.

Between two layers, the states of the pass are features of one tensor, ``[y_0, .., y_{l-1}, x_l]``:
the host's loop hands it on, and TorchScript has no other object that several modules share.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple

import torch
import torch.nn as nn
from torch import Tensor

from capsnmt.modules.layer_aggregation import LayerConnection


class Link(nn.Module):
    """The step from y_l to x_{l+1}, see :meth:`LayerConnection.link`.

    Args:
        connection: of the stack.
        number: l.
    """

    def __init__(self, connection: LayerConnection, number: int) -> None:
        super().__init__()
        before, self.weights, after = connection.link(number)
        self.before = nn.Identity() if before is None else before
        self.after = nn.Identity() if after is None else after

    def forward(self, y: Tensor, states: List[Tensor]) -> Tensor:
        """Append y_l and return x_{l+1}."""
        states.append(self.before(y))
        stacked = torch.stack(states)
        return self.after(torch.tensordot(self.weights.to(stacked.dtype), stacked, dims=1))


class ScriptedLayer(nn.Module):
    """A layer with its links, as a module.

    Args:
        layer: the layer.
        number: l, from 1 at the bottom.
        last: whether it is the top layer.
        connection: of the stack.
    """

    def __init__(
        self, layer: nn.Module, number: int, last: bool, connection: LayerConnection
    ) -> None:
        super().__init__()
        self.layer = layer
        self.number = number
        self.last = last
        self.embedding = Link(connection, 0)
        self.link = Link(connection, number)

    def begin(self, x: Tensor) -> List[Tensor]:
        """Return y_0, .., y_{l-1} and x_l; the first layer receives the embedding."""
        if self.number > 1:
            return list(x.chunk(self.number + 1, dim=-1))
        states: List[Tensor] = []
        x = self.embedding(x, states)
        states.append(x)
        return states

    def finish(self, y: Tensor, states: List[Tensor]) -> Tensor:
        """Return y_0, .., y_l and x_{l+1}; of the top layer, the output of the stack."""
        x = self.link(y, states)
        if self.last:
            return x
        states.append(x)
        return torch.cat(states, dim=-1)


class ScriptedEncoderLayer(ScriptedLayer):
    """A connected encoder layer."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # fairseq's encoder reads them; the path of 0.12.2 for evaluation stays off
        self.return_fc = False
        self.can_use_fastpath = False
        self.load_to_BT = False
        self.ever_training = True
        self.cfg_checkpoint_activations = False

    def forward(
        self, x: Tensor, encoder_padding_mask: Optional[Tensor], attn_mask: Optional[Tensor] = None
    ) -> Tensor:
        """Run the layer on x_l and return x_{l+1}."""
        states = self.begin(x)
        y = self.layer(states.pop(), encoder_padding_mask, attn_mask)
        return self.finish(y, states)


class ScriptedDecoderLayer(ScriptedLayer):
    """A connected decoder layer."""

    def forward(
        self,
        x: Tensor,
        encoder_out: Optional[Tensor] = None,
        encoder_padding_mask: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
        prev_self_attn_state: Optional[List[Tensor]] = None,
        prev_attn_state: Optional[List[Tensor]] = None,
        self_attn_mask: Optional[Tensor] = None,
        self_attn_padding_mask: Optional[Tensor] = None,
        need_attn: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor], Optional[List[Optional[Tensor]]]]:
        """Run the layer on x_l and return x_{l+1}, attention weights and state."""
        states = self.begin(x)
        y, weights, state = self.layer(
            states.pop(),
            encoder_out,
            encoder_padding_mask,
            incremental_state,
            prev_self_attn_state,
            prev_attn_state,
            self_attn_mask,
            self_attn_padding_mask,
            need_attn,
            need_head_weights,
        )
        return self.finish(y, states), weights, state


def scripted_layers(
    layers: Iterable[nn.Module], connection: LayerConnection, decoder: bool
) -> nn.ModuleList:
    """Return the layers of a stack with their connection, as modules for ``torch.jit.script``."""
    kind = ScriptedDecoderLayer if decoder else ScriptedEncoderLayer
    stack = list(layers)
    return nn.ModuleList(
        kind(layer, number, number == len(stack), connection)
        for number, layer in enumerate(stack, 1)
    )
