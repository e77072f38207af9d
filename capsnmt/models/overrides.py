"""Whether a module does what its class says: whoever computes it otherwise asks first."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

PROBABILITIES = ("get_normalized_probs", "get_normalized_probs_scriptable")
"""The methods of models and decoders that make probabilities of logits."""


def hooked(module: nn.Module) -> bool:
    """Return whether a hook waits for the passes of a module: its own or one of all modules."""
    of_all = _global_forward_hooks or _global_forward_pre_hooks
    return bool(module._forward_hooks or module._forward_pre_hooks or of_all)


def inherits(module: nn.Module, base: type, *methods: str) -> bool:
    """Return whether a module has these methods from a class, and nothing overrides them."""
    found = ((getattr(module, name), getattr(base, name)) for name in methods)
    return all(getattr(own, "__func__", None) is inherited for own, inherited in found)
