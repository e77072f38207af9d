"""Jobs on SLURM: the batch script of a run, and its submission."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from capsnmt import records
from capsnmt.checkpoints.resume import STOP_FILE
from capsnmt.cli import ConfigurationError, check_line, shown
from capsnmt.files import atomic_writer, locked
from capsnmt.launch.execute import exports, header, set_up, steps
from capsnmt.launch.run import Run, python
from capsnmt.process import package_path
from capsnmt.runs.records import RunFolder

# Long enough for a large model to finish its update and save on a busy file system.
SECONDS_TO_SAVE = 120
OF_THE_LAUNCH = ("command", "mirrors", "sources")  # of config.json; a job needs none of them
# what sbatch says, with --parsable and without
JOB = re.compile(r"^(?:Submitted batch job )?(\d+)(?:;.*)?$", re.MULTILINE)
# Two minutes before the end of its time a job saves and comes again. After SIGTERM (preempted or
# cancelled) the launcher saves, and the shell waits for it; SLURM requeues what it preempts.
WAIT = """\
save_and_come_again() {{
  touch {stop}
  for _ in {{1..90}}; do kill -0 $pid 2>/dev/null || break; sleep 1; done
  scontrol requeue "$SLURM_JOB_ID" && exit 0
}}
trap save_and_come_again USR1
trap : TERM # SLURM also sends it to the launcher: stay until that has saved
{command} &
pid=$!
while :; do
  wait $pid
  status=$?
  kill -0 $pid 2>/dev/null || exit $status # else a signal has ended the wait
done
"""


def job_script(run: Run, partition: str) -> str:
    """Return the batch script of a run: the launcher, on the run's folder.

    Its comments have the commands. An empty partition is the cluster's default.
    """
    check_line(str(Path.cwd()), "the working folder")
    device, config = run.device, run.config
    path = run.folder.path.absolute()  # not where a link leads, without the rows beside it
    name = "-".join(filter(None, (config.row, config.task, str(config.seed))))
    # In the name of a log, % begins a pattern.
    log = RunFolder(Path(str(path).replace("%", "%%"))).job_log("%j")
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
    resume = shlex.join([*python("capsnmt.launch"), "--resume", str(path)])
    stop = shlex.quote(str(RunFolder(path).checkpoints / STOP_FILE))
    lines = [
        "#!/usr/bin/env bash",
        *(f"#SBATCH {shlex.quote(option)}" for option in options),
        *header(run),
        *(f"# after the job of {folder}" for folder in run.earlier()),
        *(f"# {step.name}: {step.shell()}" for step in steps(run)),
        *exports(package_path()),  # the launcher sets the others, by what the node has
        # since SLURM 22.05 srun does not inherit it from the job
        'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"',
        "export SLURM_EXPORT_ENV=ALL",  # where SBATCH_EXPORT is NONE, srun would pass nothing on
        WAIT.format(command=resume, stop=stop),
    ]
    return "\n".join(lines)


def waiting(folders: Sequence[RunFolder]) -> List[Path]:
    """Return those of some runs whose jobs are in the queue."""
    for command in ("sbatch", "squeue"):
        if shutil.which(command) is None:
            raise ConfigurationError(
                f"--slurm needs {command}, which is not on PATH; run this where SLURM's commands "
                f"are, or drop --slurm to run here"
            )
    return [folder.path for folder in folders if alive(folder)]


def submit(run: Run, partition: str) -> str:
    """Submit a run, unless its job is in the queue, and return what its user needs to know.

    The data is prepared here. The job waits for those of the run that it starts from and of its
    baseline. A run that is complete needs no job.

    **D**: a job runs as its ``config.json`` says. Another is refused while it is in the queue: its
    flags would have no effect. Where the raw data come from is no matter: they are prepared.
    """
    with locked(run.folder.job_lock, f"waiting for another launcher that submits {run.folder}"):
        known = alive(run.folder)
        if known is None:
            left, queued = set_up(run), [*filter(None, map(alive, run.earlier()))]
            if not left and not queued:
                return f"== {run.title}: complete, {run.folder}"
            known = _submit(run, partition, [job for job, _ in queued]), "submitted"
    job, state = known
    before, now = (records.plain(each) for each in (run.folder.read_config(), run.config))
    others = [key for key in now if key not in OF_THE_LAUNCH and now[key] != before[key]]
    asked = f"#SBATCH {shlex.quote(f'--partition={partition}')}\n"
    waits = partition and state == "pending"  # one that runs has its place
    if waits and asked not in run.folder.job_script.read_text("utf-8"):
        others.append("partition")
    if others:
        raise ConfigurationError(
            f"{run.folder} has job {job} ({state}) with other {', '.join(others)}; let it end, or "
            f"scancel {job}, and run this again"
        )
    return f"== {run.title}, on {run.device}: job {job} ({state}), log {run.folder.job_log(job)}"


def _submit(run: Run, partition: str, queued: Sequence[str]) -> str:
    with atomic_writer(run.folder.job_script) as file:
        file.write(job_script(run, partition))
    after = dict.fromkeys(queued)
    # If an earlier job fails, this one leaves the queue, so that the same command submits both.
    waits = [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"]
    words = ["--parsable", *(waits if after else [])]
    # SBATCH_PARTITION takes precedence over the script, and flags over both
    words += [f"--partition={partition}"] if partition else []
    said = _run("sbatch", *words, str(run.folder.job_script))
    found = JOB.search(said)  # a cluster's own may ignore --parsable, or say more
    if found is None:
        raise ConfigurationError(
            f"--slurm: sbatch has said {shown(said)}, which has no number of a job; look into the "
            f"queue before you run this again"
        )
    records.write(run.folder.job, {"id": found[1], "folder": str(run.folder.path.absolute())})
    return found[1]


def alive(folder: RunFolder) -> Optional[Tuple[str, str]]:
    """Return number and state of the job of a run's folder if it is still in SLURM's queue.

    A copy of the folder has the record of the job as well, which is not its own.
    """
    if not folder.job.exists():
        return None
    known = records.read(folder.job, dict)
    job, submitted = str(known.get("id")), Path(known.get("folder", folder.path))
    if submitted.exists() and not submitted.samefile(folder.path):
        return None
    try:
        state = _run("squeue", "--noheader", "--jobs", job, "--format", "%T")
    except ConfigurationError as error:
        if "Invalid job id" in str(error):  # it ended minutes ago
            return None
        # The job may be there, so that another one would train in the same folder.
        raise ConfigurationError(f"{error}; run the same command when it answers") from None
    return (job, state.lower()) if state else None


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["failed without a reason"]
        raise ConfigurationError(f"--slurm: {shlex.join(command)}: {lines[-1]}")
    return done.stdout.strip()
