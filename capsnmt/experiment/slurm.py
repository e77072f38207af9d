"""Jobs on SLURM: the script, its submission, and what puts a stopped job back into the queue."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Callable, List, Mapping, Optional, Sequence

from capsnmt.errors import ConfigurationError
from capsnmt.experiment import plan
from capsnmt.experiment.arguments import without_submission
from capsnmt.experiment.commands import Run
from capsnmt.files import atomic_writer
from capsnmt.runs.folder import RunFolder

# What a large model needs to end its update and to save on a busy file system.
SECONDS_TO_SAVE = 120


def job_script(run: Run, argv: Sequence[str], partition: str) -> str:
    """The batch script of a run: the launcher itself, in a job that SLURM may preempt.

    ``exec`` lets the launcher take the place of the shell, which gets the signal (``B:``).

    Args:
        run: one seed.
        argv: the flags that the launcher was given.
        partition: where to run; empty for the cluster's default.
    """
    device = run.device
    # D: --gres and not --gpus-per-node, which old SLURMs and other schedulers' plugins lack.
    options = [
        f"--job-name={run.experiment.row}-{run.seed}",
        *([f"--partition={partition}"] if partition else []),
        f"--nodes={device.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={device.cores}",
        *([f"--gres=gpu:{device.gpus}"] if device.gpus else []),
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{SECONDS_TO_SAVE}",
        f"--output={str(run.folder.path.resolve()).replace('%', '%%')}/slurm-%j.log",
        f"--chdir={Path.cwd()}",
    ]
    # Without it the node of the job would take what it finds.
    gpu = ["--gpus", "1"] if device.gpus == 1 and not {"--gpus"} & _names(argv) else []
    arguments = [*without_submission(argv), *gpu, "--seed", str(run.seed), "--requeue"]
    lines = [
        "#!/usr/bin/env bash",
        *(f"#SBATCH {shlex.quote(option)}" for option in options),
        "set -euo pipefail",
        *plan.exports(run),
        # srun does not take it from the job since SLURM 22.05
        'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"',
        f"exec {shlex.join([sys.executable, '-m', 'capsnmt.experiment', *arguments])}",
    ]
    return "\n".join(lines) + "\n"


def submission(run: Run, argv: Sequence[str], partition: str) -> str:
    """What ``--slurm`` does, as a script; what the job itself does then, as its comments."""
    stages = plan.plan(run)
    job = run.folder.job_script
    lines = ["#!/usr/bin/env bash", *plan.header(run), "set -euo pipefail", *plan.exports(run)]
    for command in [stage for stage in stages if stage.stage == "prepare"]:
        lines += ["", "# prepare, here: nodes of a cluster often have no network"]
        lines += [*plan.data_steps(run), command.shell()]
    lines += [
        *("", "# submit", f"mkdir -p {shlex.quote(str(run.folder))}"),
        f"cat >{shlex.quote(str(job))} <<'JOB'",
        job_script(run, argv, partition) + "JOB",
        f"sbatch {shlex.quote(str(job))}",
        *("", "# The job then runs, unless they are complete, and again after a preemption:"),
    ]
    for command in [stage for stage in stages if stage.stage != "prepare"]:
        lines += [f"# {command.stage}", f"#   {command.shell()}"]
    return "\n".join(lines) + "\n"


def submit(run: Run, argv: Sequence[str], partition: str) -> str:
    """Submit a run and return the number of its job, which waits for that of its baseline.

    Raises:
        ConfigurationError: there is no SLURM here, or it refuses the job.
    """
    path = run.folder.job_script
    with atomic_writer(path) as file:
        file.write(job_script(run, argv, partition))
    after = alive(run.of(run.baseline)) if run.baseline else None
    waits = [f"--dependency=afterok:{after}"] if after else []
    job = _run("sbatch", "--parsable", *waits, str(path)).partition(";")[0]
    run.folder.write_job(job)
    return job


def tell(run: Run, job: str) -> str:
    """A sentence on a job and its log."""
    return f"job {job} ({_state(job).lower()}), log {run.folder.job_log(job)}"


def alive(folder: RunFolder) -> Optional[str]:
    """The number of the job of a run's folder if SLURM still has it in its queue."""
    job = folder.read_job()
    return job if job and _state(job) else None


def requeue(variables: Mapping[str, str], tell: Callable[[str], object]) -> None:
    """Put the job we are in back into the queue, and tell what comes of it in a sentence.

    **D**: only a job that SLURM counts as running. One that the user cancelled must not come back,
    and one that SLURM itself puts back when it preempts needs no help.
    """
    job = variables["SLURM_JOB_ID"]
    state = _state(job)
    if state != "RUNNING":
        tell(f"job {job} is {(state or 'gone').lower()}: not requeued")
        return
    tell(f"job {job} is requeued")  # first: SLURM ends us as soon as it has the job back
    _run("scontrol", "requeue", job)


def check_job(nodes: int, requeues: bool, variables: Mapping[str, str]) -> None:
    """Raise unless the SLURM job that the flags speak of is the one we are in.

    Raises:
        ConfigurationError: we are in none, or in one of too few nodes.
    """
    job = variables.get("SLURM_JOB_ID")
    if requeues and job is None:
        raise ConfigurationError("--requeue: this is no SLURM job: drop it, or submit by --slurm")
    have = int(variables.get("SLURM_JOB_NUM_NODES", 1)) if job else 1
    if nodes > have:
        where = f"job {job} has {have}" if job else "this is no SLURM job"
        raise ConfigurationError(
            f"--nodes {nodes}: {where}: give --slurm to submit a job of {nodes} nodes, or start "
            f"this in an allocation (salloc --nodes={nodes})"
        )


def _names(argv: Sequence[str]) -> set[str]:
    return {argument.partition("=")[0] for argument in argv}


def _state(job: str) -> str:
    """PENDING, RUNNING, ...; nothing when the queue does not know the job."""
    try:
        return _run("squeue", "--noheader", "--jobs", job, "--format", "%T")
    except ConfigurationError:
        return ""


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ConfigurationError(
            f"--slurm: {command[0]} is not on PATH: run this where SLURM's commands are, or drop "
            f"--slurm to run here"
        ) from None
    if done.returncode:
        lines: List[str] = done.stderr.strip().splitlines() or ["no reason given"]
        raise ConfigurationError(f"--slurm: {shlex.join(command)}: {lines[-1]}")
    return done.stdout.strip()
