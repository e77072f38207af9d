"""The tasks of the plugin; importing them registers them."""

from pathlib import Path

import capsnmt

if not hasattr(capsnmt, "__version__"):
    # A checkout's folder, which has the package's name, was imported in its place. fairseq then
    # imports its ``tasks``, which is a link to this folder.
    package = Path(__file__).resolve().parents[1]
    raise SystemExit(f"--user-dir is the checkout {package.parent}; give {package}")

import capsnmt.plugin  # fairseq imports this folder: register everything
from capsnmt.tasks.logical_inference import LogicalInferenceTask
from capsnmt.tasks.probing import ProbingTask

__all__ = ["LogicalInferenceTask", "ProbingTask"]
