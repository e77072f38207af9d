"""The optimizers of the plugin; importing them registers them."""

from capsnmt.optim.fused_adam import FusedAdam

__all__ = ["FusedAdam"]
