"""Jobs: what is submitted, in which order, and what the batch script does with signals.

Stand-ins for SLURM's commands answer by job; tests/slurm runs a real SLURM.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Iterator, List

import pytest
import torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.distributed.utils import infer_init_method
from omegaconf import OmegaConf

from capsnmt.launch import train
from tests.commands import command
from tests.interpreter import executable, ran
from tests.launch.conftest import Launch
from tests.small_row import SMALL

SBATCH = """#!/bin/sh
here=${0%/*}
if test -e "$here/refuses"; then cat "$here/refuses" >&2; exit 1; fi
job=$(($(cat "$here/jobs" 2>/dev/null || echo 0) + 1))
echo $job >"$here/jobs"
printf '%s|' "$@" >>"$here/submitted"
echo >>"$here/submitted"
test -e "$here/slow" && sleep 2
echo PENDING >"$here/state-$job"
cat "$here/says" 2>/dev/null || echo "$job;cluster"
"""
SQUEUE = """#!/bin/sh
here=${0%/*}
if test -e "$here/silent"; then echo "slurm_load_jobs error: Unable to contact" >&2; exit 1; fi
while test "$1" != --jobs; do shift; done
cat "$here/state-$2" 2>/dev/null || { echo "slurm_load_jobs error: Invalid job id" >&2; exit 1; }
"""
SCONTROL = """#!/bin/sh
echo "$@" >>"${0%/*}/controlled"
"""


class Cluster:
    """SLURM's commands, of which the jobs stay in the queue until `end`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scontrol", SCONTROL)):
            executable(folder / name, text)

    def end(self, job: int) -> None:
        (self.folder / f"state-{job}").unlink()

    def read(self, name: str) -> List[str]:
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []

    @property
    def submitted(self) -> List[List[str]]:
        """The arguments of each submission, but for the first, --parsable."""
        calls = [line.split("|")[:-1] for line in self.read("submitted")]
        assert all(call[0] == "--parsable" for call in calls)
        return [call[1:] for call in calls]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{cluster.folder}:{os.environ['PATH']}")
    return cluster


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "100% of 'my' runs"


@pytest.fixture
def submission(prepared: Path, output: Path) -> List[str]:
    data = ["--set", "data.recipe=null", "--set", "data.test-sets=null"]
    data += ["--set", "data.test-sets.news=test", "--prepared", str(prepared)]
    return ["--dataset", "multi30k", *data, "--output", str(output), "--slurm"]


def test_each_seed_is_a_job_until_it_ends(
    cluster: Cluster, submission: List[str], output: Path, launch: Launch
) -> None:
    scripts = [output / "baseline" / f"seed-{seed}" / "job.sh" for seed in (1, 2)]
    said = launch(*submission, "--seeds", "1,2")
    assert cluster.submitted == [[str(script)] for script in scripts]
    assert json.loads(scripts[1].with_name("job.json").read_text("utf-8"))["id"] == "2"
    assert f"seed 2, on 1 GPU: job 2 (submitted), log {scripts[1].parent}/slurm-2.log" in said
    # in the name of a log, % begins a pattern, and sbatch reads quotes as bash does
    log = f"--output={output}/baseline/seed-2/slurm-%j.log".replace("100%", "100%%")
    assert f"#SBATCH {shlex.quote(log)}\n" in scripts[1].read_text("utf-8")

    (cluster.folder / "state-2").write_text("RUNNING\n", "utf-8")
    config = scripts[0].with_name("config.json")  # of a launch whose raw data lay elsewhere
    known = {**json.loads(config.read_text("utf-8")), "sources": "/raw", "mirrors": ["http://m"]}
    config.write_text(json.dumps(known), "utf-8")
    again = launch(*submission, "--seeds", "1,2")
    assert "job 1 (pending)" in again
    assert "job 2 (running)" in again
    for flags, other in (
        (["--set", "train.lr=0.1"], "settings"),
        (["--gpus", "2"], "device"),
        (["--slurm", "long"], "partition"),
    ):
        refused = launch(*submission, *flags, status=2)
        assert f"seed-1 has job 1 (pending) with other {other}; let it end, or scancel" in refused
    cluster.end(1)
    launch(*submission, "--seeds", "1,2")
    assert cluster.submitted == [[str(script)] for script in (*scripts, scripts[0])]
    shutil.copytree(output, output.with_name("copy"))  # whose job is none of the queue
    copied = [word.replace(str(output), str(output.with_name("copy"))) for word in submission]
    assert "job 4 (submitted)" in launch(*copied, "--seeds", "2", "--set", "train.lr=0.1")


def test_a_job_has_the_allocator_of_its_node_and_is_submitted_once_also_if_squeue_is_silent(
    cluster: Cluster,
    submission: List[str],
    output: Path,
    launch: Launch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where there is none, training.json would have that of the machine that submits."""
    known, submission = {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}, [*submission, "--cpu"]
    monkeypatch.setattr("capsnmt.launch.run.tcmalloc", lambda: known)
    launch(*submission)
    run = output / "baseline" / "seed-1"
    assert "LD_PRELOAD" in (run / "commands.sh").read_text("utf-8")
    assert "LD_PRELOAD" not in (run / "job.sh").read_text("utf-8")
    (cluster.folder / "silent").touch()
    assert re.search("squeue.*Unable to contact", launch(*submission, status=2))
    assert len(cluster.submitted) == 1
    (cluster.folder / "silent").unlink()
    cluster.end(1)  # SLURM knows a job that ended some minutes ago no more
    launch(*submission)
    assert len(cluster.submitted) == 2


def test_two_launchers_at_once_submit_one_job(cluster: Cluster, submission: List[str]) -> None:
    (cluster.folder / "slow").touch()
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(command, "capsnmt.launch", *submission) for _ in range(2)]
    said = sorted(done.result().stdout.rpartition("job 1 ")[2][:11] for done in both)
    assert said == ["(pending), ", "(submitted)"]
    assert len(cluster.submitted) == 1


def test_what_sbatch_says_has_the_number_of_the_job_or_there_is_none(
    cluster: Cluster, submission: List[str], output: Path, launch: Launch
) -> None:
    for file, text, line in (
        ("says", "accepted", "sbatch.* 'accepted', .*queue before"),
        ("refuses", "sbatch: error: no such partition", "sbatch --parsable.*: no such partition"),
    ):
        (cluster.folder / file).write_text(f"{text}\n", "utf-8")
        assert re.search(line, launch(*submission, status=2))
        assert not list(output.rglob("job.json"))
    (cluster.folder / "refuses").unlink()
    for seed, said in enumerate(("Submitted batch job 1", "1;c\nYour job costs 3 SU")):
        (cluster.folder / "says").write_text(f"{said}\n", "utf-8")
        for state in ("submitted", "pending"):
            assert f"job 1 ({state})" in launch(*submission, "--seed", seed)
    assert len(cluster.submitted) == 3


def test_without_slurm_nothing_is_prepared(
    launch: Launch, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    given = ["--dataset", "multi30k", "--data", tmp_path, "--prepared", output, "--slurm"]
    said = launch(*given, "--output", output, status=2)
    assert "--slurm needs sbatch, which is not on PATH" in said
    assert not output.exists()


def test_a_row_waits_for_the_jobs_of_its_baseline_and_its_start(
    cluster: Cluster, submission: List[str], output: Path, tmp_path: Path, launch: Launch
) -> None:
    row = [*submission, "--config", "em_routing", "--baseline", "baseline"]
    assert "launch baseline first" in launch(*row, status=2)
    launch(*submission)
    (tmp_path / "scratch").mkdir()
    (output / "em_routing").symlink_to(tmp_path / "scratch")  # beside which is no baseline
    launch(*row)
    job = (output / "em_routing" / "seed-1" / "job.sh").read_text("utf-8")
    resumed = shlex.quote(str(output / "em_routing" / "seed-1"))
    assert f"-m capsnmt.launch --resume {resumed} &\n" in job
    assert "scratch" not in job
    started = ["--set", "init-from=em_routing", "--name", "started"]
    launch(*row, *started)
    waits = [call[:-1] for call in cluster.submitted]
    again = "--kill-on-invalid-dep=yes"
    assert waits == [[], ["--dependency=afterok:1", again], ["--dependency=afterok:2:1", again]]
    # both named, in either order
    cluster.end(1)
    cluster.end(2)
    rows = ["--rows", "dlcl_routing_from_baseline,baseline", "--max-update", "2000"]
    launch(*submission, *rows)
    assert [call[:-1] for call in cluster.submitted[3:]] == [[], ["--dependency=afterok:4", again]]


# an interpreter of the job that writes down what it is asked to run and which signals it gets
JOB = """#!/bin/bash
printf '%s|' "$@" >"${0%/*}/asked"
trap 'echo TERM >"${0%/*}/got"; exit 143' TERM
echo $$ >"${0%/*}/ready"
for _ in {1..1400}; do
  test ! -e "${0%/*}/end" || exit 3
  test ! -e "STOP" || { echo stopped >"${0%/*}/got"; exit 0; }
  sleep 0.05
done
"""


@pytest.fixture
def job(
    cluster: Cluster,
    submission: List[str],
    output: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    launch: Launch,
) -> Iterator[subprocess.Popen]:
    """The batch script of a run, started; its folder and its interpreter have odd names."""
    python = tmp_path / "an env" / "python"
    python.parent.mkdir()
    run = output / "baseline" / "seed-1"
    stop = run / "checkpoints" / "stop"
    executable(python, JOB.replace("STOP", str(stop)))
    monkeypatch.setattr(sys, "executable", str(python))
    launch(*submission)
    stop.parent.mkdir()

    variables = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1"}
    script = ["bash", str(run / "job.sh")]
    started = subprocess.Popen(script, env=variables, start_new_session=True)
    deadline = time.monotonic() + 60
    ready = python.parent / "ready"
    try:
        while not (ready.exists() and ready.stat().st_size):
            assert started.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def test_a_job_ends_with_the_status_of_the_launcher(job: subprocess.Popen, tmp_path: Path) -> None:
    (tmp_path / "an env" / "end").touch()
    assert job.wait(60) == 3


def test_a_job_whose_time_is_over_saves_and_comes_again(
    job: subprocess.Popen, cluster: Cluster, output: Path, tmp_path: Path
) -> None:
    job.send_signal(signal.SIGUSR1)
    assert job.wait(60) == 0
    run = output / "baseline" / "seed-1"
    asked = (tmp_path / "an env" / "asked").read_text("utf-8")
    assert asked.split("|") == ["-m", "capsnmt.launch", "--resume", str(run), ""]
    assert (tmp_path / "an env" / "got").read_text("utf-8") == "stopped\n"
    assert cluster.read("controlled") == ["requeue 7"]


def test_a_cancelled_or_preempted_job_saves_and_leaves_the_queue_to_slurm(
    job: subprocess.Popen, cluster: Cluster, tmp_path: Path
) -> None:
    os.killpg(job.pid, signal.SIGTERM)  # as SLURM does
    assert job.wait(60) == 143
    assert (tmp_path / "an env" / "got").read_text("utf-8") == "TERM\n"
    assert cluster.read("controlled") == []


@pytest.mark.system
def test_a_job_runs_what_was_submitted_whatever_is_edited_since_and_resumes_on_gpus(
    cluster: Cluster, words: List[str], run: Path, tmp_path: Path, launch: Launch
) -> None:
    """A run that is complete needs no job; where its scores were lost, nothing is trained."""
    words, row = [*words, "--slurm"], tmp_path / "row.yaml"
    assert launch(*words) == f"== row, seed 1: complete, {run}\n"
    (run / "scores-news.json").unlink()
    assert "job 1 (submitted)" in launch(*words)
    row.write_text(SMALL.replace("lr: 0.005", "lr: 0.5"), "utf-8")
    assert "job 1 (pending) with other settings" in launch(*words, status=2)
    done = ran(["bash", run / "job.sh"], SLURM_JOB_ID="1", SLURM_CPUS_PER_TASK="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": complete") == 3
    assert "--lr 0.005 " in (run / "commands.sh").read_text("utf-8")
    cluster.end(1)
    assert "was trained with train.lr 0.005, not 0.5" in launch(*words, status=2)
    assert len(cluster.submitted) == 1
    # on GPUs, which a login node has not: it resumes in the job, and its old scores are gone before
    row.write_text(SMALL, "utf-8")
    words.remove("--cpu")
    assert launch(*words) == f"== row, seed 1: complete, {run}\n"
    assert (run / "scores.json").exists()
    assert "job 2 (submitted)" in launch(*words, "--set", "train.max-epoch=9")
    assert not (run / "scores.json").exists()


def test_a_node_has_a_process_for_each_gpu_also_in_a_container(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's hook of enroot takes the task of a node for a process."""
    executable(cluster.folder / "scontrol", "#!/bin/sh\necho a\necho b\n")
    of_hook = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "9"}
    of_step = {"STEP_NODELIST": "[a-b]", "JOB_ID": "7", "PROCID": "1", "NODEID": "1"}
    of_step.update(NNODES="2", NTASKS_PER_NODE="1")
    for name, value in {**of_hook, **{f"SLURM_{x}": y for x, y in of_step.items()}}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(train, "ignore_stops", lambda: None)
    cfg = OmegaConf.structured(DistributedTrainingConfig(distributed_world_size=8, tpu=False))
    train.find_place(cfg, cpu=False)
    infer_init_method(cfg)
    assert (cfg.distributed_world_size, cfg.distributed_rank) == (8, 4)
    assert cfg.distributed_init_method.startswith("tcp://a:")
