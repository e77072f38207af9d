"""The tasks of sentence classification; importing them registers them."""

from capsnmt.sentences.tasks.logical_inference import LogicalInferenceTask
from capsnmt.sentences.tasks.probing import ProbingTask

__all__ = ["LogicalInferenceTask", "ProbingTask"]
