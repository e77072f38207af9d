"""Rows that start from the model of another: in the plan, in jobs, and in a real small launch."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Dict, List, Tuple

import pytest
import torch
from capsnmt.launch.cli import main

from capsnmt import process
from capsnmt.checkpoints.load import load_checkpoint
from capsnmt.files import locked, sha256
from capsnmt.launch.devices import choose_device
from capsnmt.launch.run import environment
from capsnmt.runs.folder import RunFolder
from tests.launch.conftest import Cluster, plan, run_forked, run_without_generation
from tests.small_row import SMALL

MULTI30K = ["--dataset", "multi30k", "--cpu", "--output", "runs"]
ROW = "dlcl_routing_from_baseline"
START = "init-from: base\n"


def trainings(text: str) -> Dict[str, str]:
    """Folder of the run -> command of its training, in the order of a plan."""
    found = [line for line in text.splitlines() if "capsnmt.launch.training" in line]
    return {re.search(r"--save-dir (\S+)/checkpoints", line)[1]: line for line in found}


def test_the_plan_trains_the_other_row_first_as_it_stands(capsys: pytest.CaptureFixture):
    seeds, own = ["--seeds", "1,2"], ["--max-update", "2000", "--set", "train.lr=0.001"]
    ours = plan(capsys, *MULTI30K, "--config", ROW, *seeds, *own)
    for seed in (1, 2):
        alone = plan(capsys, *MULTI30K, "--config", "baseline", "--seed", str(seed))
        assert ours.count(alone) == 1
        row = trainings(ours)[f"runs/{ROW}/seed-{seed}"]
        assert f"--init-from runs/baseline/seed-{seed}/averaged.pt" in row
        assert "--max-update 2000" in row
        assert "--lr 0.001" in row
        start = f"runs/baseline/seed-{seed}/averaged.pt, the model of baseline, seed {seed}\n"
        assert f"# start     {start}" in ours
    folders = [f"runs/{row}/seed-{seed}" for seed in (1, 2) for row in ("baseline", ROW)]
    assert list(trainings(ours)) == folders


def test_options_apply_to_both_rows_if_both_are_named(capsys: pytest.CaptureFixture):
    text = plan(capsys, *MULTI30K, "--rows", f"{ROW},baseline", "--max-update", "2000")
    commands = trainings(text)
    assert list(commands) == ["runs/baseline/seed-1", f"runs/{ROW}/seed-1"]
    assert all("--max-update 2000" in command for command in commands.values())


def test_options_of_the_data_apply_to_both_rows(capsys: pytest.CaptureFixture):
    text = plan(capsys, *MULTI30K, "--config", ROW, "--set", "data.recipe=null")
    assert len(trainings(text)) == 2
    assert "capsnmt.corpora" not in text


def test_the_other_row_is_compared_only_where_it_is_named(capsys: pytest.CaptureFixture):
    text = plan(capsys, *MULTI30K, "--config", ROW, "--baseline", "baseline")
    scores = [line for line in text.splitlines() if " capsnmt.evaluation " in line]
    assert [" --baseline " in line for line in scores] == [False, False, True, True]


def test_any_row_can_start_from_another(capsys: pytest.CaptureFixture):
    text = plan(capsys, *MULTI30K, "--config", "em_routing", "--set", "init-from=baseline")
    assert list(trainings(text)) == ["runs/baseline/seed-1", "runs/em_routing/seed-1"]


def test_the_values_of_a_sweep_start_from_one_run(capsys: pytest.CaptureFixture):
    row = "dou2019_em_routing_from_baseline"
    given = ["--dataset", "wmt14_en_de", "--cpu", "--output", "runs", "--config", row]
    text = plan(capsys, *given, "--sweep", "layer-capsules=1,8")
    baseline, *points = trainings(text).values()
    assert "--layer-capsules" not in baseline
    checkpoint = "runs/baseline/seed-1/checkpoints/checkpoint_last.pt"
    assert [f"--init-from {checkpoint}" in each for each in points] == [True, True]
    report = text.splitlines()[-1]
    assert "runs/baseline" not in report


BAD: Dict[str, Tuple[str, List[str], List[str]]] = {
    "no such row": ("init-from: nothing", [], ["init-from: nothing", "no such configuration"]),
    "itself": ("init-from: row", [], ["row starts from row", "does not start from this one"]),
    "its own name": (START, ["--name", "base"], ["base starts from base"]),
    "a circle": ("init-from: child", [], ["row starts from child starts from row"]),
    "other data": ("init-from: multi30k/baseline", [], ["has dataset multi30k", "the same data"]),
    "other languages": ("init-from: french", [], ["has data.target-lang fr", "has de"]),
    "another size": ("init-from: wide", [], ["has width 32", "has width 16", "the same size"]),
    "two starts": (
        "init-from: base\ntrain: {init-from: a.pt}",
        [],
        ["train.init-from", "drop one of them"],
    ),
    "no text": ("init-from: 3", [], ["init-from: 3", "a text"]),
}
FILES = {
    "base": SMALL,
    "wide": "extends: base\ntrain: {encoder-embed-dim: 32, decoder-embed-dim: 32}\n",
    "french": "extends: base\ndata: {target-lang: fr}\n",
    "child": "extends: base\ninit-from: row\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_start_that_cannot_work_is_one_line_of_the_plan(
    capsys: pytest.CaptureFixture, tmp_path: Path, name: str
):
    text, flags, parts = BAD[name]
    for file, content in {**FILES, "row": f"extends: base\n{text}\n"}.items():
        (tmp_path / f"{file}.yaml").write_text(content, encoding="utf-8")
    given = ["--config", str(tmp_path / "row.yaml"), "--cpu", "--output", str(tmp_path / "runs")]
    assert main([*given, *flags, "--dry-run"]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.count("\n") == 1
    assert all(part in printed.err for part in parts), printed.err


def test_the_job_of_a_row_waits_for_that_of_the_row_it_starts_from(
    cluster: Cluster, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    output = tmp_path / "runs"
    row = ["--dataset", "multi30k", "--config", ROW, "--max-update", "2000"]
    row += ["--prepared", str(prepared), "--output", str(output), "--set", "data.recipe=null"]
    row += ["--set", "data.test-sets=null", "--set", "data.test-sets.news=test"]
    scripts = [output / each / "seed-1" / "job.sh" for each in ("baseline", ROW)]
    text = plan(capsys, *row, "--slurm")
    assert f"# with --dependency=afterok:JOB, the job of baseline, seed 1\nsbatch {scripts[1]}" in (
        text
    )

    cluster.answers("squeue", "PENDING")
    assert main([*row, "--slurm"]) == 0, capsys.readouterr().err
    dependency = "--dependency=afterok:7 --kill-on-invalid-dep=yes "
    assert cluster.called("sbatch") == [
        f"--parsable {scripts[0]}",
        f"--parsable {dependency}{scripts[1]}",
    ]
    capsys.readouterr()

    together = trainings(plan(capsys, *row, "--gpus", "1"))
    for script in scripts:
        (line,) = re.findall(r"^exec (.*)$", script.read_text(encoding="utf-8"), re.MULTILINE)
        flags = shlex.split(line)[3:]
        flags.remove("--requeue")
        job = trainings(plan(capsys, *flags))
        assert {folder: together[folder] for folder in job} == job
        assert list(job)[-1] == str(script.parent)


def model(folder: RunFolder) -> Dict[str, torch.Tensor]:
    state = load_checkpoint(folder.last_checkpoint)["model"]
    # uninitialised memory in fairseq 0.12.2
    return {name: value for name, value in state.items() if not name.endswith("_float_tensor")}


@pytest.mark.system
@pytest.mark.one_host  # tests/checkpoints start from another checkpoint on both
def test_a_row_starts_from_the_trained_other_and_resumes_from_itself(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "run", run_without_generation)
    for file, content in {"base": SMALL, "row": f"extends: base\n{START}"}.items():
        (tmp_path / f"{file}.yaml").write_text(content, encoding="utf-8")

    def launch(row: str, output: str, *flags: str) -> str:
        given = ["--config", str(tmp_path / f"{row}.yaml"), "--prepared", str(prepared)]
        given += ["--cpu", "--threads", "1", "--output", str(tmp_path / output)]
        status = main([*given, *flags])
        printed = capsys.readouterr()
        assert status == 0 or printed.err.count("\n") == 1, printed.err
        return printed.out + printed.err

    base, row = (RunFolder(tmp_path / "runs" / each / "seed-1") for each in ("base", "row"))
    # Another launcher that starts from the same row holds it until this one begins to wait.
    other = ExitStack()
    other.enter_context(locked(base.lock, "free at first"))
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", lambda _: other.close())
        once = launch("row", "runs")
    assert f"waiting for another launcher that trains base, seed 1: {base}\n" in once
    assert once.count("-- train: 4 updates") == 2
    assert "initialised from base (4 updates), trained for 4 more" in once
    initial = row.read_description().initial
    assert initial is not None
    assert (initial.row, initial.updates) == ("base", 4)
    assert (initial.checkpoint, initial.checksum) == (
        str(base.last_checkpoint),
        sha256(base.last_checkpoint),
    )
    summary = json.loads(row.summary.read_text(encoding="utf-8"))
    assert (summary["updates"], summary["init-from"], summary["initial-updates"]) == (4, "base", 4)
    loaded = row.console_log.read_text(encoding="utf-8") + row.train_log.read_text(encoding="utf-8")
    assert f"--init-from {base.last_checkpoint}" in loaded

    # The other row is found, however many updates it has; the row resumes from its own checkpoint.
    resumed = launch("row", "runs", "--max-update", "8")
    assert "resuming at 4 of 8 updates" in resumed
    assert "== base" not in resumed
    elsewhere = RunFolder(tmp_path / "elsewhere")
    (command,) = trainings(row.read_commands()).values()
    command = command.replace(str(row.checkpoints), str(elsewhere.checkpoints))
    assert run_forked(shlex.split(command), environment(choose_device(1, None, 1)), print) == 0
    capsys.readouterr()
    ours, through, before = model(row), model(elsewhere), model(base)
    assert ours.keys() == through.keys() == before.keys()
    assert all(torch.equal(ours[name], through[name]) for name in ours)
    assert not all(torch.equal(ours[name], before[name]) for name in ours)

    # A changed configuration, other data and a changed checkpoint of the other row are refused.
    (tmp_path / "base.yaml").write_text(SMALL.replace("lr: 0.005", "lr: 0.01"), "utf-8")
    refused = launch("row", "runs", "--max-update", "8")
    assert "was trained with train.lr 0.005, not 0.01" in refused
    # A job gets the --set of a launch that named both rows.
    accepted = launch("row", "runs", "--max-update", "8", "--set", "train.lr=0.005")
    assert "-- train: complete at 8 updates" in accepted
    (tmp_path / "base.yaml").write_text(SMALL, "utf-8")
    description = base.read_description()
    base.write_description(dataclasses.replace(description, vocabulary={"dict.en.txt": "0"}))
    assert "was trained on other data" in launch("row", "runs", "--max-update", "8")
    base.write_description(description)
    shutil.copyfile(row.last_checkpoint, base.last_checkpoint)
    refused = launch("row", "runs", "--max-update", "8")
    changed = f"was initialised from base (4 updates), but {base.last_checkpoint} has changed"
    assert changed in refused
