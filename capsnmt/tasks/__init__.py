"""The tasks of the plugin; importing this registers them."""

from capsnmt.tasks.logical_inference import LogicalInferenceTask
from capsnmt.tasks.probing import ProbingTask

__all__ = ["LogicalInferenceTask", "ProbingTask"]
