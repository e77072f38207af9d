"""The base class of all aggregations of layers."""

import math
from typing import List

import torch
from torch import Tensor, nn


def check_positive(**sizes: int) -> None:
    """Raise unless every size is at least 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"layer aggregation: {name} must be at least 1, not {size}")


def check_count(states: List[Tensor], expected: int) -> None:
    """Raise unless the number of states is the expected one."""
    if len(states) != expected:
        raise ValueError(
            f"layer aggregation was built for {expected} states and got {len(states)}: pass the "
            f"output of every layer"
        )


def reset_linear(linear: nn.Module, gain: float = 1.0) -> None:
    """Apply Glorot initialisation to each block separately; set biases to 0."""
    bound = gain * math.sqrt(6 / sum(linear.weight.shape[-2:]))
    nn.init.uniform_(linear.weight, -bound, bound)
    nn.init.zeros_(linear.bias)


class LayerAggregation(nn.Module):
    """Aggregation of the layers H^1..H^L, L tensors ``[..., d]``, into one ``[..., d]``.

    Each position is aggregated independently, so incremental decoding needs no state. One that is a
    sum over the layers says by ``contributions(layers)`` what each adds, ``[..., L, d]``.

    Raises:
        ValueError: L or d is below 1; in a call, the number of layers is not L.
    """

    def __init__(self, embed_dim: int, num_layers: int) -> None:
        super().__init__()
        check_positive(embed_dim=embed_dim, num_layers=num_layers)
        self.embed_dim = embed_dim
        self.num_layers = num_layers

    def concatenate(self, layers: List[Tensor]) -> Tensor:
        """Join H^1..H^L on the feature dimension, ``[..., L d]``, layer 1 first."""
        check_count(layers, self.num_layers)
        return torch.cat(layers, dim=-1)

    def split(self, concatenated: Tensor) -> Tensor:
        """Split ``[..., L x]`` by layer, ``[..., L, x]``."""
        return concatenated.unflatten(-1, (self.num_layers, -1))
