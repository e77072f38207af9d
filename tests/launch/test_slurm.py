"""The launcher's requests to SLURM, and its use of the answers; tests/slurm runs a real SLURM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import pytest
from capsnmt.launch.cli import main

from capsnmt.cli import ConfigurationError
from capsnmt.launch import slurm
from tests.launch.conftest import Cluster


@pytest.fixture
def submission(prepared: Path, tmp_path: Path) -> List[str]:
    flags = ["--config", "multi30k/baseline", "--slurm", "--set", "data.recipe=null"]
    flags += ["--set", "data.test-sets=null", "--set", "data.test-sets.news=test"]
    return [*flags, "--prepared", str(prepared), "--output", str(tmp_path / "100% runs")]


def test_each_seed_is_a_job_and_the_same_command_submits_it_once(
    cluster: Cluster, submission: List[str], tmp_path: Path, capsys: pytest.CaptureFixture
):
    row = tmp_path / "100% runs" / "baseline"
    scripts = [row / f"seed-{seed}" / "job.sh" for seed in (1, 2)]
    assert main([*submission, "--seeds", "1,2"]) == 0, capsys.readouterr().err
    assert cluster.called("sbatch") == [f"--parsable {script}" for script in scripts]
    assert json.loads((row / "seed-2" / "job.json").read_text()) == {"id": "7"}
    job = scripts[1].read_text(encoding="utf-8")
    assert "--seed 2 --requeue" in job
    assert "--gres=gpu:1" in job
    assert "--gpus 1 " in job, "without it a node that lacks its GPU would train on the CPU"
    assert "--slurm" not in job
    assert f"{tmp_path}/100%% runs/baseline/seed-2/slurm-%j.log" in job, "% is a pattern"

    cluster.answers("squeue", "PENDING")
    assert main([*submission, "--seeds", "1,2"]) == 0
    assert len(cluster.called("sbatch")) == 2
    assert "seed 2, on 1 GPU: job 7 (pending), log " in capsys.readouterr().out


def test_a_row_waits_for_the_job_of_its_baseline(
    cluster: Cluster, submission: List[str], capsys: pytest.CaptureFixture
):
    row = [*submission, "--name", "other", "--baseline", "baseline"]
    assert main(row) == 2
    assert "run that row first" in capsys.readouterr().err
    assert main(submission) == 0
    cluster.answers("squeue", "RUNNING")
    # the stand-in for the queue answers the same for every job, so this one gets another number
    cluster.answers("sbatch", "8")
    assert main(row) == 0
    assert cluster.called("sbatch")[-1].startswith("--parsable --dependency=afterok:7 ")


def test_without_slurm_the_flag_is_refused_in_one_line(
    submission: List[str], monkeypatch, capsys: pytest.CaptureFixture, tmp_path: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(submission) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "--slurm: sbatch is not on PATH" in message


def test_a_job_that_slurm_refuses_is_reported_with_its_reason(
    cluster: Cluster, submission: List[str], capsys: pytest.CaptureFixture, tmp_path: Path
):
    cluster.answers("sbatch", "sbatch: error: invalid partition specified: nowhere", "fails")
    assert main([*submission, "--slurm", "nowhere"]) == 2
    assert "invalid partition specified: nowhere" in capsys.readouterr().err
    assert not list((tmp_path / "100% runs").rglob("job.json"))


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "CANCELLED", ""])
def test_only_a_running_job_is_requeued(cluster: Cluster, state: str):
    cluster.answers("squeue", state)
    outcomes, requeued = [], state == "RUNNING"

    def report(outcome: str) -> None:
        assert not cluster.called("scontrol"), "SLURM may end this process before the report"
        outcomes.append(outcome)

    slurm.requeue({"SLURM_JOB_ID": "7"}, report)
    assert cluster.called("scontrol") == (["requeue 7"] if requeued else [])
    assert ["not requeued" in outcome for outcome in outcomes] == [not requeued]


def test_the_nodes_asked_for_must_be_those_of_the_job():
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
    slurm.check_job(2, True, job)
    with pytest.raises(ConfigurationError, match="--nodes 3: job 7 has 2"):
        slurm.check_job(3, False, job)
    with pytest.raises(ConfigurationError, match="--requeue: this is not a SLURM job"):
        slurm.check_job(1, True, {})
