"""Jobs on SLURM: the batch script, its submission, and requeueing after a preemption."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, List, Mapping, Optional, Sequence, Set, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.files import atomic_writer
from capsnmt.launch import plan
from capsnmt.launch.arguments import for_initial_run, without_submission
from capsnmt.launch.run import Run
from capsnmt.runs.folder import RunFolder

# Long enough for a large model to finish its update and save on a busy file system.
SECONDS_TO_SAVE = 120


def job_script(run: Run, argv: Sequence[str], partition: str) -> str:
    """Return the batch script of a run: the launcher itself, in a job that SLURM may preempt.

    ``exec`` replaces the shell, which gets the signal (``B:``), by the launcher.

    Args:
        run: one seed.
        argv: the flags of the launcher.
        partition: where to run; empty for the cluster's default.
    """
    device, experiment, point = run.device, run.experiment, run.experiment.point
    name = "-".join([experiment.row, *([run.task] if run.task else []), str(run.seed)])
    # In the name of a log, % begins a pattern.
    folder = RunFolder(Path(str(run.folder.path.resolve()).replace("%", "%%")))
    log = folder.job_log("%j")
    # D: --gres and not --gpus-per-node, which old SLURMs and other schedulers' plugins lack.
    options = [
        f"--job-name={name}",
        *([f"--partition={partition}"] if partition else []),
        f"--nodes={device.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={device.cores}",
        *([f"--gres=gpu:{device.gpus}"] if device.gpus else []),
        "--requeue",
        "--open-mode=append",
        f"--signal=B:USR1@{SECONDS_TO_SAVE}",
        f"--output={log}",
        f"--chdir={Path.cwd()}",
    ]
    # Without --gpus the job would use a GPU or the CPU, depending on what its node has.
    gpu = ["--gpus", "1"] if device.gpus == 1 and not {"--gpus"} & _names(argv) else []
    row = experiment.row if point is None else point.row
    which = ["--config", f"{experiment['dataset']}/{row}"] if {"--rows"} & _names(argv) else []
    common = without_submission(argv)
    if run.file is not None:
        which, common = ["--config", str(run.file)], for_initial_run(common)
    arguments = [
        *common,
        *which,
        *(["--tasks", run.task] if run.task else []),
        *([] if point is None else ["--point", f"{point.flag}={point.label}"]),
        # With --rows, the baseline is not compared with itself.
        *(["--baseline", run.baseline] if run.baseline else []),
        *gpu,
        *("--seed", str(run.seed), "--requeue"),
    ]
    lines = [
        "#!/usr/bin/env bash",
        *(f"#SBATCH {shlex.quote(option)}" for option in options),
        "set -euo pipefail",
        *plan.exports(run),
        # since SLURM 22.05 srun does not inherit it from the job
        'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"',
        f"exec {shlex.join([sys.executable, '-m', 'capsnmt.launch', *arguments])}",
    ]
    return "\n".join(lines) + "\n"


def submission(run: Run, argv: Sequence[str], partition: str) -> str:
    """Return the commands of ``--slurm`` as a script, with those of the job as comments."""
    job, prepare = run.folder.job_script, run.prepare()
    lines = ["#!/usr/bin/env bash", *plan.header(run), "set -euo pipefail", *plan.exports(run)]
    if prepare is not None:
        lines += ["", "# prepare, here: nodes of a cluster often have no network"]
        lines += [*plan.data_steps(run), prepare.shell()]
    lines += [
        *("", "# submit", f"mkdir -p {shlex.quote(str(run.folder))}"),
        f"cat >{shlex.quote(str(job))} <<'JOB'",
        job_script(run, argv, partition) + "JOB",
        *_waits(run),
        f"sbatch {shlex.quote(str(job))}",
        *("", "# The job then runs, unless they are complete, and again after a preemption:"),
    ]
    for stage in [run.train(), *run.evaluation()]:
        lines += [f"# {stage.name}", f"#   {stage.shell()}"]
    return "\n".join(lines) + "\n"


def _waits(run: Run) -> List[str]:
    """Return a comment about the job that must end first, if there is one."""
    if run.initial is None or run.initial.is_finished:
        return []
    return [f"# with --dependency=afterok:JOB, the job of {run.initial.title}"]


def submit(run: Run, argv: Sequence[str], partition: str) -> str:
    """Submit a run and return the number of its job.

    It waits for the jobs of the run that it starts from and of its baseline.

    Raises:
        ConfigurationError: there is no SLURM here, or it refuses the job.
    """
    path = run.folder.job_script
    with atomic_writer(path) as file:
        file.write(job_script(run, argv, partition))
    earlier = [] if run.initial is None else [run.initial.folder]
    earlier += [run.of(run.baseline)] if run.baseline else []
    after = dict.fromkeys(queued[0] for queued in map(alive, earlier) if queued)
    # If an earlier job fails, this one leaves the queue, so that the same command submits both.
    waits = [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"]
    job = _run("sbatch", "--parsable", *(waits if after else []), str(path)).partition(";")[0]
    run.folder.write_job(job)
    return job


def alive(folder: RunFolder) -> Optional[Tuple[str, str]]:
    """Return number and state of the job of a run's folder if it is still in SLURM's queue.

    Raises:
        ConfigurationError: ``squeue`` cannot answer; the job may be there, so that another one
            would train in the same folder.
    """
    job = folder.read_job()
    state = _state(job) if job else ""
    return (str(job), state.lower()) if state else None


def check_commands() -> None:
    """Raise unless SLURM's commands are here.

    Raises:
        ConfigurationError: naming the first that is missing.
    """
    for command in ("sbatch", "squeue"):
        if shutil.which(command) is None:
            raise _missing(command)


def requeue(variables: Mapping[str, str], report: Callable[[str], object]) -> None:
    """Requeue the current job, and report the outcome.

    **D**: only a job in the state RUNNING is requeued. A job that the user cancelled must not
    return, and SLURM itself requeues a job that it preempts.
    """
    job = variables["SLURM_JOB_ID"]
    try:
        state = _state(job)
    except ConfigurationError as error:
        report(f"{error}: not requeued")
        return
    if state != "RUNNING":
        report(f"job {job} is {(state or 'gone').lower()}: not requeued")
        return
    report(f"job {job} is requeued")  # first: SLURM ends this process at once
    _run("scontrol", "requeue", job)


def check_job(nodes: int, requeues: bool, variables: Mapping[str, str]) -> None:
    """Raise unless this process runs in the SLURM job that the flags need.

    Raises:
        ConfigurationError: it runs in none, or in one of too few nodes.
    """
    job = variables.get("SLURM_JOB_ID")
    if requeues and job is None:
        raise ConfigurationError(
            "--requeue: this is not a SLURM job: drop it, or submit by --slurm"
        )
    have = int(variables.get("SLURM_JOB_NUM_NODES", 1)) if job else 1
    if nodes > have:
        where = f"job {job} has {have}" if job else "this is not a SLURM job"
        raise ConfigurationError(
            f"--nodes {nodes}: {where}: give --slurm to submit a job of {nodes} nodes, or start "
            f"this in an allocation (salloc --nodes={nodes})"
        )


def _names(argv: Sequence[str]) -> Set[str]:
    return {argument.partition("=")[0] for argument in argv}


def _state(job: str) -> str:
    """Return PENDING, RUNNING, ...; empty if the job is not in the queue."""
    try:
        return _run("squeue", "--noheader", "--jobs", job, "--format", "%T")
    except ConfigurationError as error:
        if "Invalid job id" in str(error):  # it ended minutes ago
            return ""
        raise ConfigurationError(f"{error}: run the same command when it answers") from None


def _missing(command: str) -> ConfigurationError:
    return ConfigurationError(
        f"--slurm: {command} is not on PATH: run this where SLURM's commands are, or drop --slurm "
        f"to run here"
    )


def _run(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except FileNotFoundError:
        raise _missing(command[0]) from None
    if done.returncode:
        lines: List[str] = done.stderr.strip().splitlines() or ["no reason given"]
        raise ConfigurationError(f"--slurm: {shlex.join(command)}: {lines[-1]}")
    return done.stdout.strip()
