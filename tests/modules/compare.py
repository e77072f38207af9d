"""What every comparison with an oracle does: random parameters, then values and gradients."""

from typing import Any, List, Sequence

import torch
from torch import Tensor, nn


def randomised(module: nn.Module, std: float = 0.7, **others: float) -> Any:
    """Return the module in double precision, evaluating, with random numbers everywhere.

    What starts at a constant would be tested at one special point only. Parameters whose names
    contain a word of ``others`` have that deviation.
    """
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, std=next((s for w, s in others.items() if w in name), std))
    return module.double().eval()


def numbers(*shape: int, seed: int = 1) -> Tensor:
    """Draw numbers in double precision, of which a gradient is wanted."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def gradients(output: Tensor, learned: Sequence[Tensor], **settings: bool) -> List[Tensor]:
    """Return the gradients of a random weighted sum, the same for every output of a shape."""
    weighted = (output * numbers(*output.shape, seed=9)).sum()
    return list(torch.autograd.grad(weighted, learned, retain_graph=True, **settings))


def assert_same(
    output: Tensor, expected: Tensor, module: nn.Module, *inputs: Tensor, **tolerances: float
) -> None:
    """Check values, and the gradients of the inputs and of every parameter."""
    torch.testing.assert_close(output, expected, **tolerances)
    learned = [*inputs, *module.parameters()]
    theirs = gradients(expected, learned)
    for with_graph in (False, True):
        ours = gradients(output, learned, create_graph=with_graph)
        torch.testing.assert_close(ours, theirs, **tolerances)
