"""Encoder and decoder as one graph each (``--compile``), which serves batches of every shape.

Only training runs compiled. A pass that an observer (:mod:`capsnmt.modules.observation`, or
recorded routing) or a hook reads runs eagerly: a graph hands nothing out on its way, and torch
does not look for hooks that came after it was recorded.
"""

import functools
from typing import Any, Callable, Optional

import torch
from fairseq import utils
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor, nn

from capsnmt.cli import ConfigurationError
from capsnmt.modules.observation import open_observer
from capsnmt.modules.overrides import hooked
from capsnmt.routing.recording import open_records
from capsnmt.routing.tracing import is_traced

Forward = Callable[..., Any]


@functools.cache
def compiled(forward: Forward) -> Forward:
    """Compile a forward function once per process, as one graph with dynamic shapes."""
    from torch._dynamo.exc import TorchDynamoException  # 2 s that other commands save

    run = torch.compile(forward, fullgraph=True, dynamic=True)

    @functools.wraps(forward)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except TorchDynamoException as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigurationError(
                f"--compile: torch cannot compile this model ({reason}); train without it"
            ) from error

    return wrapped


def runs_compiled(stack: nn.Module) -> bool:
    """Return whether this pass of an encoder or decoder runs compiled."""
    if not (stack.compiles and stack.training):
        return False
    observed = open_observer() is not None or open_records() is not None
    return not observed and not any(hooked(part) for part in stack.modules() if part is not stack)


class CompilablePositions(SinusoidalPositionalEmbedding):
    """fairseq's sinusoidal positions. The host reads the length from a tensor, not from a shape."""

    def forward(
        self,
        input: Tensor,
        incremental_state: Optional[Any] = None,
        timestep: Optional[Tensor] = None,
        positions: Optional[Any] = None,
    ) -> Tensor:
        """Return the embeddings ``[B, T, d]`` of the positions of tokens ``[B, T]``."""
        if not is_traced():
            return super().forward(input, incremental_state, timestep, positions)
        weights, highest = self.weights, self.padding_idx + 1 + input.size(1)
        if highest > weights.size(0):
            weights = self.get_embedding(highest, self.embedding_dim, self.padding_idx).to(weights)
        return weights[utils.make_positions(input, self.padding_idx)].detach()


def make_compilable(stack: nn.Module) -> None:
    """Replace what no graph can contain in an encoder or decoder; the values stay the same."""
    positions = stack.embed_positions
    if isinstance(positions, SinusoidalPositionalEmbedding):
        size, weights = positions.weights.size(0), positions.weights
        made = CompilablePositions(positions.embedding_dim, positions.padding_idx, init_size=size)
        stack.embed_positions = made.to(weights)
