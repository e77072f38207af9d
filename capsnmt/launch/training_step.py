"""The training step of a run: its device, the split of its update, its precision, its command.

The program is `train`: fairseq-train that stops on request.
"""

import argparse
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List

import capsnmt.plugin  # isort: skip  (first: it registers our architectures)

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from capsnmt.cli import ConfigurationError
from capsnmt.launch import flags
from capsnmt.launch.run import Run
from capsnmt.modules.autocast import bf16_obstacle
from capsnmt.modules.layer_aggregation import OVERFLOW_FP16
from capsnmt.runs.records import Device, RunConfig
from capsnmt.steps import Step

USER_DIR = Path(capsnmt.__file__).parent


def choose_device(options: argparse.Namespace) -> Device:
    """Return the device that the flags ask for; by default one GPU if there is one, else the CPU.

    A job gets one GPU by default. It, a dry run, or several nodes are of other machines.
    """
    gpus = options.gpus
    if options.cpu:
        gpus = 0
    elif gpus is None:
        gpus = 1 if options.slurm is not None else min(1, torch.cuda.device_count())
    device = Device(
        gpus=gpus, processes=options.cpu or 1, threads=options.threads, nodes=options.nodes
    )
    if options.slurm is None and not options.dry_run:
        check_gpus(device)
    return device


def check_gpus(device: Device) -> None:
    """Raise unless torch finds the GPUs on this machine: without, fairseq would use the CPU.

    The processes of several nodes are started by srun, after the data have been prepared.
    """
    if device.nodes > 1 and shutil.which("srun") is None:
        raise ConfigurationError(
            f"--nodes is {device.nodes}, but srun is not on PATH; give --slurm, or run this where "
            f"SLURM's commands are"
        )
    found = torch.cuda.device_count()
    if device.nodes == 1 and device.gpus > found:
        fix = f"give --gpus 1..{found} or --cpu" if found else "give --cpu"
        raise ConfigurationError(
            f"--gpus is {device.gpus}, but torch can use {found or 'none'} of this machine; {fix}"
        )


@dataclass(frozen=True)
class Update:
    """The update of a configuration, split over devices and passes."""

    per_pass: int  # the most tokens or sentences of one device in one forward pass
    update_freq: int  # passes whose gradients are accumulated
    workers: int  # devices that share the update
    wanted: int  # tokens or sentences per update that the configuration asks for
    unit: str = "tokens"  # or sentences

    @property
    def per_update(self) -> int:
        """The most tokens or sentences that one update sees, over all devices."""
        return self.per_pass * self.update_freq * self.workers

    def __str__(self) -> str:
        text = (
            f"{self.per_update:,} {self.unit} per update = {self.per_pass:,} {self.unit} x "
            f"{self.workers} device(s) x {self.update_freq} accumulated"
        )
        fewer = self.wanted - self.per_update
        return text + (f", {fewer:,} fewer than the configured {self.wanted:,}" if fewer else "")


def split_update(per_update: int, most: int, workers: int, unit: str = "tokens") -> Update:
    """Split an update over devices: the fewest passes that fit, all of the same size.

    **D**: where the number of devices does not divide the batch, the update is smaller by less
    than one token (or sentence) a device and pass, never larger.

    >>> split_update(4096, 4096, 1).update_freq, split_update(4096, 4096, 2).per_pass
    (1, 2048)
    >>> split_update(25000, 4096, 2).update_freq
    4
    >>> print(split_update(25000, 4096, 7))
    24,997 tokens per update = 3,571 tokens x 7 device(s) x 1 accumulated, 3 fewer than the \
configured 25,000

    ``most`` is the most tokens (or sentences) for one device in one pass.
    """
    if per_update < workers:
        raise ConfigurationError(
            f"{per_update} {unit} per update cannot be split over {workers} devices; use fewer"
        )
    passes = min(-(-per_update // (workers * most)), per_update // workers)
    return Update(per_update // (workers * passes), passes, workers, per_update, unit)


def update(run: Run) -> Update:
    """The tokens or sentences of an update, split over the run's devices."""
    wanted, workers = run.settings.batch, run.device.workers
    if run.settings.classifies:
        sentences, most = wanted.sentences_per_update or 0, wanted.max_sentences or 1
        return split_update(sentences, most, workers, "sentences")
    return split_update(wanted.tokens_per_update or 0, wanted.max_tokens or 1, workers)


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
    device, folder, split = run.device, run.folder, update(run)
    size = "--batch-size" if run.settings.classifies else "--max-tokens"
    # By default the first process sends the checkpoint to the others in a form that torch >= 2.6
    # does not load, so training on several GPUs could not resume.
    several = ["--load-checkpoint-on-all-dp-ranks"] if device.workers > 1 else []
    by_gloo = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    start = [] if run.initial is None else ["--init-from", str(run.initial_model)]
    # D: on a CPU the training loads its data itself, without processes that compete with it.
    chosen = bool(device.gpus) or "num-workers" in run.settings.train
    arguments = (
        *common(run),
        *("--arch", str(run.settings.arch)),
        *flags.training(run.settings),
        *start,
        *(size, str(split.per_pass), "--update-freq", str(split.update_freq)),
        *_validation(run),
        # Without a world size fairseq takes every GPU it sees.
        *("--distributed-world-size", str(device.workers)),
        *several,
        *(by_gloo if several and not device.gpus else []),
        *([] if chosen else ["--num-workers", "0"]),
        *{"bf16": ["--autocast", "bf16"], "fp16": ["--fp16"]}.get(precision(run), []),
        *("--seed", str(run.config.seed), "--save-dir", str(folder.checkpoints)),
        *("--log-format", "json", "--log-file", str(folder.train_log)),
    )
    program = tuple(_program(device))
    return Step("train", (folder.last_checkpoint,), program=program, arguments=arguments)


def saved_settings(config: RunConfig) -> Dict[str, Any]:
    """Return what tells the checkpoints of a run from another's, as fairseq saves it with them."""
    settings, data = config.settings, config.settings.data
    sides = {"source_lang": data.source_lang, "target_lang": data.target_lang}
    return {"seed": config.seed, "arch": settings.arch, **sides}


def _validation(run: Run) -> List[str]:
    """Return the flag that lets a validation sentence be as long on any number of devices."""
    most = run.settings.batch.max_tokens
    chosen = run.settings.classifies or "max-tokens-valid" in run.settings.train
    same = update(run).per_pass == most
    return [] if chosen or same else ["--max-tokens-valid", str(most)]


def _program(device: Device) -> List[str]:
    python = sys.executable
    training = ["-m", "capsnmt.launch.train"]
    processes = device.gpus or device.processes
    if device.nodes > 1:
        # D: with GPUs one task a node, which starts its own processes: as fairseq does on SLURM.
        tasks = 1 if device.gpus else device.processes
        step = [f"--nodes={device.nodes}", f"--ntasks={device.nodes * tasks}"]
        step += [f"--ntasks-per-node={tasks}"]
        # the job has all cores of a node for one task
        step += [f"--cpus-per-task={device.threads or 1}"] if tasks > 1 else []
        # fairseq takes every GPU that the task sees
        step += [f"--gres=gpu:{device.gpus}"] if device.gpus else []
        return ["srun", *step, "--kill-on-bad-exit=1", python, *training]
    if processes > 1:
        # the name of this host may have no address
        workers = ["--standalone", "--local-addr=localhost", f"--nproc_per_node={processes}"]
        return [python, "-m", "torch.distributed.run", *workers, *training]
    return [python, *training]


def precision(run: Run) -> str:
    """Return the precision that the settings ask for: bf16, fp16 or fp32.

    **D**: ``fp16`` is for GPUs; on a CPU it is fp32. ``auto`` is fp16 on a GPU, bf16 for a model
    that overflows it, if the GPU has it. On a CPU it is bf16 if that has the instructions
    (docs/precision.md has the measurements), for the architectures that have the switch; otherwise
    fp32. The checkpoint has the setting of ``bf16``, so the later steps need no flag.
    """
    asked, gpu = run.settings.precision or "fp32", bool(run.device.gpus)
    of_preset = getattr(preset(str(run.settings.arch)), "layer_aggregation", "none")
    overflows = run.settings.train.get("layer-aggregation", of_preset) in OVERFLOW_FP16
    if asked == "auto" and gpu:
        # a plan may be made on another machine
        obstacle = bf16_obstacle("cuda") if torch.cuda.is_available() else None
        return "fp16" if not overflows else "fp32" if obstacle else "bf16"
    if asked == "auto":
        model = ARCH_MODEL_REGISTRY.get(str(run.settings.arch))
        ours = model is not None and model.__module__.startswith("capsnmt.")
        return "bf16" if ours and bf16_obstacle("cpu") is None else "fp32"
    return asked if gpu or asked == "bf16" else "fp32"


def trained_precision(run: Run) -> str:
    """Return the precision of a training: that of the settings, or the flag of fairseq's own."""
    flags = ("memory-efficient-fp16", *(["amp"] if run.device.gpus else []))
    return next((flag for flag in flags if run.settings.train.get(flag)), precision(run))


def preset(arch: str) -> argparse.Namespace:
    """Return the arguments that an architecture sets; an unknown one sets none."""
    args = argparse.Namespace()
    ARCH_CONFIG_REGISTRY.get(arch, vars)(args)
    return args
