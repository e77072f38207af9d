"""The tasks of the plugin; importing them registers them."""

import capsnmt.plugin  # noqa: F401  fairseq imports this folder: register everything
from capsnmt.tasks.logical_inference import LogicalInferenceTask
from capsnmt.tasks.probing import ProbingTask

__all__ = ["LogicalInferenceTask", "ProbingTask"]
