"""Sweeps: each value is an ordinary row, in the plan, in jobs, and in a real small launch."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
from capsnmt.launch.cli import main

from capsnmt import process
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import SweepPoint
from tests.launch.conftest import Cluster, plan, run_without_generation
from tests.small_row import SMALL

DOU = ["--dataset", "wmt14_en_de", "--cpu", "--output", "runs"]
ROWS = [*DOU, "--rows", "baseline,dou2019_em_routing", "--baseline", "baseline"]
ROW = [*DOU, "--config", "dou2019_em_routing"]


def test_the_plan_is_that_of_the_baseline_and_of_the_row_with_each_value(
    capsys: pytest.CaptureFixture, tmp_path: Path
):
    ours = plan(capsys, *ROWS, "--sweep", "layer-capsules=1,8,512", "--seeds", "1,2")
    parts = []
    for seed in ("1", "2"):
        same = ["--seed", seed, "--output", "runs"]
        parts.append(plan(capsys, *DOU, *same, "--config", "baseline"))
        for value in ("1", "8", "512"):
            name = f"dou2019_em_routing_layer-capsules-{value}"
            given = [*ROW, *same, "--baseline", "baseline", "--name", name]
            parts.append(plan(capsys, *given, "--set", f"train.layer-capsules={value}"))
    rows = ["baseline", *(f"dou2019_em_routing_layer-capsules-{value}" for value in (1, 8, 512))]
    folders = " ".join(f"runs/{row}" for row in rows)
    report = f"{sys.executable} -m capsnmt.report {folders} --output runs/sweep-layer-capsules"
    assert ours == "".join(parts) + f"\n# draw the sweep\n{report}\n"
    script = tmp_path / "plan.sh"
    script.write_text(ours, encoding="utf-8")
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_a_point_is_one_row_of_a_sweep(capsys: pytest.CaptureFixture):
    point = plan(capsys, *ROW, "--point", "--layer_capsules=8")
    given = ["--name", "dou2019_em_routing_layer-capsules-8", "--set", "train.layer-capsules=8"]
    assert point == plan(capsys, *ROW, *given)


@pytest.mark.parametrize(
    ("flag", "values", "expected"),
    [
        ("mlmha", "M-00,M-11", ["--mlmha M-00", "--mlmha M-11"]),
        ("head-capsule-norm", "true,false", ["--head-capsule-norm ", ""]),
        (
            "disagreement-weight",
            "0,0.5",
            ["--disagreement-weight 0.0", "--disagreement-weight 0.5"],
        ),
    ],
)
def test_values_have_the_type_of_their_flag(
    capsys: pytest.CaptureFixture, flag: str, values: str, expected: List[str]
):
    config = ["--config", "wmt14_en_de/li2021_both", "--cpu"]
    ours = plan(capsys, *config, "--sweep", f"{flag}={values}")
    trainings = [line for line in ours.splitlines() if "capsnmt.launch.training" in line]
    assert len(trainings) == 2
    for line, value, typed in zip(trainings, values.split(","), expected):
        assert f"/li2021_both_{flag}-{value}" in line
        assert typed in line
        assert typed or f"--{flag}" not in line


ONE = "layer-capsules=1,8"
BAD: Dict[str, Any] = {
    "no values": (ROW, ["--sweep", "layer-capsules"], ["'layer-capsules'", "=1,8,64,512"]),
    "no flag": (ROW, ["--sweep", "=1,8"], ["'=1,8'", "for example"]),
    "an empty list": (ROW, ["--sweep", "layer-capsules="], ["'layer-capsules='", "for example"]),
    "an empty value": (ROW, ["--sweep", "layer-capsules=1,,8"], ["'layer-capsules=1,,8'"]),
    "one value": (ROW, ["--sweep", "layer-capsules=8"], ["has one value", "--point"]),
    "a value twice": (ROW, ["--sweep", "layer-capsules=8,1,8"], ["given twice"]),
    "a number twice": (ROW, ["--sweep", "layer-capsules=8,08"], ["=08", "given twice"]),
    "several points": (ROW, ["--point", ONE], ["give one value", "--sweep"]),
    "two sweeps": (ROW, ["--sweep", ONE, "--sweep", "routing-iterations=1,2"], ["one flag"]),
    "sweep and point": (ROW, ["--sweep", ONE, "--point", "layer-capsules=2"], ["not allowed with"]),
    "an unknown flag": (ROW, ["--sweep", "capsules=1,8"], ["'capsules'", "layer-capsules, "]),
    "a flag of fairseq": (ROW, ["--sweep", "lr=1,2"], ["'lr'", "routing-iterations"]),
    "no number": (ROW, ["--sweep", "layer-capsules=1,x"], ["=x", "a whole number"]),
    "not finite": (ROW, ["--sweep", "disagreement-weight=1,nan"], ["=nan", "a number"]),
    "no truth": (ROW, ["--sweep", "head-capsule-norm=yes,no"], ["=yes", "true or false"]),
    "no name": (ROW, ["--sweep", "layer-aggregation=a/b,linear"], ["a/b", "without a slash"]),
    "a name for a number": (ROW, ["--sweep", "layer-capsules=0,1"], ["0 means d", "the number"]),
    "no divisor": (
        ROW,
        ["--sweep", "layer-capsules=8,7"],
        ["dou2019_em_routing_layer-capsules-7", "7 does not divide", "1, 2, 4, 8"],
    ),
    "no choice": (
        ROW,
        ["--sweep", "layer-aggregation=linear,quadratic"],
        ["'quadratic'", "choose from", "em-routing"],
    ),
    "without effect": (
        [*DOU, "--config", "baseline"],
        ["--sweep", ONE],
        ["--sweep: baseline_layer-capsules-1", "no effect", "--layer-aggregation is none"],
    ),
    "also set": (
        ROW,
        ["--sweep", ONE, "--set", "train.layer-capsules=4"],
        ["--set train.layer-capsules", "drop one"],
    ),
    "a classifier": (
        ["--config", "probing_li2019/em", "--cpu"],
        ["--sweep", "head-capsules=1,8"],
        ["sentence classifier", "BLEU"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_sweep_that_cannot_work_is_one_line_of_the_plan(capsys: pytest.CaptureFixture, name: str):
    row, flags, parts = BAD[name]
    assert main([*row, *flags, "--dry-run"]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.count("\n") == 1
    assert all(part in printed.err for part in parts), printed.err


def test_each_job_runs_its_own_row(
    cluster: Cluster,
    prepared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
):
    where = ["--prepared", str(prepared), "--output", str(tmp_path / "runs")]
    data = ["--set", "data.recipe=null", "--set", "data.test-sets=null"]
    data += ["--set", "data.test-sets.news=test"]
    sweep = ["--sweep", "--head-capsules=1,8", "--baseline", "baseline"]
    rows = ["--dataset", "multi30k", "--rows", "baseline,em_routing", *sweep, *where, *data]
    assert main([*rows, "--slurm"]) == 0, capsys.readouterr().err
    assert "when these jobs are finished: " in capsys.readouterr().out

    def planned(*arguments: str) -> List[str]:
        text = plan(capsys, *arguments)
        return [line for line in text.splitlines() if line.startswith(sys.executable)]

    together = planned(*rows, "--gpus", "1")[:-1]
    alone = []
    for row in ("baseline", "em_routing_head-capsules-1", "em_routing_head-capsules-8"):
        job = (tmp_path / "runs" / row / "seed-1" / "job.sh").read_text(encoding="utf-8")
        (line,) = re.findall(r"^exec (.*)$", job, re.MULTILINE)
        _, _, module, *flags = shlex.split(line)
        assert module == "capsnmt.launch"
        flags.remove("--requeue")
        alone += planned(*flags)
    assert alone == together


@pytest.mark.system
@pytest.mark.nightly  # each value is an ordinary row; tests/report/test_sweeps.py draws
def test_a_sweep_that_was_begun_is_completed_and_drawn(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "run", run_without_generation)
    (tmp_path / "small.yaml").write_text(SMALL, encoding="utf-8")
    output = tmp_path / "runs"
    command = ["--config", str(tmp_path / "small.yaml"), "--prepared", str(prepared)]
    command += ["--cpu", "--threads", "1", "--output", str(output)]
    assert main([*command, "--point", "head-capsules=16"]) == 0, capsys.readouterr().err
    assert not list(output.glob("sweep-*"))
    capsys.readouterr()
    assert main([*command, "--sweep", "head-capsules=2,16"]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.count("-- train: complete at 4 updates") == 1
    for value in (2, 16):
        folder = RunFolder(output / f"small_head-capsules-{value}" / "seed-1")
        description = folder.read_description()
        assert description.sweep == SweepPoint("small", "head-capsules", value)
        assert description.train["head-capsules"] == value
    with (output / "sweep-head-capsules" / "sweep-head-capsules.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["system"], line["value"]) for line in lines] == [("small", "2"), ("small", "16")]
    assert all(int(line["parameters"]) > 0 for line in lines)
