"""Whether a module does what its class says: whoever computes it otherwise asks first."""

from torch import nn
from torch.nn.modules import module as of_torch

HOOKS = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
PROBABILITIES = ("get_normalized_probs", "get_normalized_probs_scriptable")
"""The methods of models and decoders that make probabilities of logits."""


def hooked(module: nn.Module) -> bool:
    """Return whether a hook waits for the passes of a module: its own or one of all modules."""
    return any(getattr(module, f"_{h}") or getattr(of_torch, f"_global_{h}") for h in HOOKS)


def overridden(module: nn.Module, base: type) -> bool:
    """Return whether anything but the forward function of a class sees the passes of a module."""
    return hooked(module) or not inherits(module, base, "forward")


def inherits(module: nn.Module, base: type, *methods: str) -> bool:
    """Return whether a module has these methods from a class, and nothing overrides them.

    Functions are compared: in a graph that ``torch.compile`` records, a method has none.
    """
    kind, own = type(module), vars(module)
    return all(
        name not in own and getattr(kind, name, None) is getattr(base, name) for name in methods
    )
