"""The training step of a run: fairseq-train on its device (`train` is the program)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional

import capsnmt.plugin  # isort: skip  (first: it registers our architectures)

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from capsnmt.cli import ConfigurationError
from capsnmt.launch import flags
from capsnmt.launch.devices import Batch, split_batch, train_prefix
from capsnmt.launch.run import Run
from capsnmt.modules.autocast import bf16_obstacle
from capsnmt.modules.layer_aggregation import OVERFLOW_FP16
from capsnmt.runs.records import Settings
from capsnmt.steps import Step

USER_DIR = Path(capsnmt.__file__).parent


def batch(run: Run) -> Batch:
    """The tokens or sentences of an update, split over the run's devices."""
    wanted, workers = run.settings.batch, run.device.workers
    if run.settings.classifies:
        sentences, most = wanted.sentences_per_update or 0, wanted.max_sentences or 1
        return split_batch(sentences, most, workers, unit="sentences")
    return split_batch(wanted.tokens_per_update or 0, wanted.max_tokens or 1, workers)


def warning(run: Run) -> Optional[str]:
    """A warning if the share of a device is smaller than the longest sentence may be.

    fairseq drops sentences that do not fit into ``--max-tokens`` without a message.
    """
    if run.settings.classifies:
        return None
    train, share = run.settings.train, batch(run).per_pass
    sides = [train.get(f"max-{side}-positions") or 1024 for side in ("source", "target")]
    longest = min([run.settings.batch.max_tokens or 0, *map(int, sides)])
    if share >= longest:
        return None
    return (
        f"sentences of more than {share:,} tokens are left out of training: {longest:,} are "
        f"allowed, but the update is shared by {run.device.workers} devices"
    )


def common(run: Run) -> List[str]:
    """The arguments of data and task that training and generation both need."""
    if run.settings.classifies:
        data = run.data.folder
        task = [] if run.config.task is None else ["--probing-task", run.config.task]
    else:
        data, (source, target) = run.data.binarised, run.settings.languages
        task = ["--source-lang", source, "--target-lang", target]
    # The fork's default multiple of 8 drops the last batch of a data set of any other size:
    # sentences would be missing in validation and in the output.
    every_batch = ["--required-batch-size-multiple", "1"]
    return [str(data), "--user-dir", str(USER_DIR), *task, *cpu(run), *every_batch]


def cpu(run: Run) -> List[str]:
    """The flag that prevents fairseq from using a GPU in a run on the CPU."""
    return [] if run.device.gpus else ["--cpu"]


def train(run: Run) -> Step:
    """The training."""
    device, folder = run.device, run.folder
    # By default the first process sends the checkpoint to the others in a form that torch >= 2.6
    # does not load, so training on several GPUs could not resume.
    several = ["--load-checkpoint-on-all-dp-ranks"] if device.workers > 1 else []
    by_gloo = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    # Not an input of the step: the record of the training refuses another checkpoint.
    start = []
    if run.initial is not None:
        start = ["--init-from", str(run.initial.model(run.config))]
    # D: on a CPU the training loads its data itself, without processes that compete with it.
    chosen = bool(device.gpus) or "num-workers" in run.settings.train
    arguments = (
        *common(run),
        *("--arch", str(run.settings.arch)),
        *flags.training(run.settings),
        *start,
        *batch(run).argv(),
        # Without a world size fairseq takes every GPU it sees.
        *("--distributed-world-size", str(device.workers)),
        *several,
        *(by_gloo if several and not device.gpus else []),
        *([] if chosen else ["--num-workers", "0"]),
        *precision_flags(run),
        *("--seed", str(run.config.seed), "--save-dir", str(folder.checkpoints)),
        *("--log-format", "json", "--log-file", str(folder.train_log)),
    )
    program = tuple(train_prefix(device, sys.executable))
    return Step("train", (folder.last_checkpoint,), program=program, arguments=arguments)


def precision_flags(run: Run) -> List[str]:
    """Return the flags of the precision that the settings ask for.

    **D**: ``fp16`` is for GPUs; on a CPU it is fp32. ``auto`` is fp16 on a GPU, bf16 for a model
    that overflows it, if the GPU has it. On a CPU it is bf16 if that has the instructions
    (docs/precision.md has the measurements), for the architectures that have the switch; otherwise
    fp32. The checkpoint has the setting of ``bf16``, so the later steps need no flag.
    """
    precision, gpu = run.settings.precision, bool(run.device.gpus)
    overflows = gpu and _overflows_fp16(run.settings)
    if precision == "auto" and gpu:
        # a plan may be made on another machine
        obstacle = bf16_obstacle("cuda") if torch.cuda.is_available() else None
        precision = "fp16" if not overflows else "fp32" if obstacle else "bf16"
    elif precision == "auto":
        model = ARCH_MODEL_REGISTRY.get(str(run.settings.arch))
        ours = model is not None and model.__module__.startswith("capsnmt.")
        precision = "bf16" if ours and bf16_obstacle("cpu") is None else "fp32"
    if precision == "fp16" and overflows:
        raise ConfigurationError(
            "precision is fp16, which --layer-aggregation dlcl and dense overflow; set bf16, fp32 "
            "or auto"
        )
    on_gpu = {"fp16": ["--fp16"]} if gpu else {}
    return {"bf16": ["--autocast", "bf16"], **on_gpu}.get(str(precision), [])


def _overflows_fp16(settings: Settings) -> bool:
    """Return whether ``--layer-aggregation``, of the row or of its preset, cannot train in fp16."""
    preset = argparse.Namespace()
    ARCH_CONFIG_REGISTRY.get(str(settings.arch), vars)(preset)
    chosen = settings.train.get("layer-aggregation", getattr(preset, "layer_aggregation", "none"))
    return chosen in OVERFLOW_FP16
