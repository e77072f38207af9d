"""Sentence classification in the launcher: rows, tasks, seeds, stages, and refused settings."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from capsnmt.launch.cli import main
from capsnmt.launch.config import available

from capsnmt import files, process, records
from capsnmt.runs.folder import RunFolder
from capsnmt.sentences.senteval import TASKS
from tests.report.test_classification import measures

DATASETS = sorted({row.split("/")[0] for row in available() if row[:7] in ("probing", "logical")})
BASE = """
dataset: tiny
arch: probing_transformer
data: {recipe: senteval, tasks: "WC,BShift"}
batch: {sentences-per-update: 8, max-sentences: 4}
precision: fp32
train: {task: probing, criterion: sentence_classification, optimizer: adam, max-update: 2}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a data set of two rows, and SentEval's files."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "configs" / "tiny"
    folder.mkdir(parents=True)
    (folder / "base.yaml").write_text(BASE, "utf-8")
    (folder / "baseline.yaml").write_text("extends: base\n", "utf-8")
    (folder / "em.yaml").write_text("extends: base\ntrain: {head-aggregation: em}\n", "utf-8")
    (tmp_path / "senteval").mkdir()
    for task in TASKS.values():
        (tmp_path / "senteval" / task.file).write_text("tr\tO\ta\n", "utf-8")
    return tmp_path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> List[List[str]]:
    """The commands that would run; instead of running, each writes its output files."""
    ran: List[List[str]] = []

    def pretend(argv: Any, *_: Any, **__: Any) -> int:
        ran.append(list(argv))
        if "--save-dir" in argv:
            save(Path(argv[argv.index("--save-dir") + 1]))
        else:
            result = {"task": "probing", "probing_task": "WC", "updates": 2, "parameters": 1}
            path = Path(argv[argv.index("--json") + 1])
            records.write(path, {**result, "splits": {"test": measures(50.0)}})
        return 0

    monkeypatch.setattr(process, "run", pretend)
    return ran


def save(folder: Path, updates: int = 2) -> None:
    """The checkpoints of a training."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        torch.save({"model": {}, "optimizer_history": [{"num_updates": updates}]}, folder / name)


GIVEN = ["--dataset", "tiny", "--rows", "all", "--data", "senteval", "--output", "runs", "--cpu"]


def test_every_row_task_and_seed_is_trained_and_evaluated_seed_by_seed_and_then_skipped(
    project: Path, commands: List[List[str]], capsys: pytest.CaptureFixture
) -> None:
    assert main([*GIVEN, "--seeds", "1,2"]) == 0, capsys.readouterr().err
    trained = [shlex.join(c) for c in commands if "--save-dir" in c]
    assert len(commands) == 2 * len(trained) == 2 * 2 * 2 * 2
    assert [
        ("--head-aggregation em" in t, t.split("--probing-task ")[1][:2], t.split("--seed ")[1][0])
        for t in trained
    ] == [(em, task, seed) for seed in "12" for em in (False, True) for task in ("WC", "BS")]
    assert "== em, BShift: runs/em/BShift/summary.json" in capsys.readouterr().out
    summary = records.load(project / "runs/em/WC/summary.json")
    assert (summary["task"], summary["seeds"]) == ("WC", [1, 2])
    assert summary["scores"]["test"]["accuracy"]["values"] == [50.0, 50.0]

    absolute = [str(project / word) if word in ("senteval", "runs") else word for word in GIVEN]
    assert main([*absolute, "--seeds", "1,2"]) == 0
    assert len(commands) == 16, "also with other spellings of the folders"
    # only what was lost is made again
    (project / "runs/em/WC/seed-2/results.json").unlink()
    assert main([*GIVEN, "--seeds", "1,2"]) == 0
    assert [command[2] for command in commands[16:]] == ["capsnmt.sentences.evaluate"]


def test_a_training_by_epochs_is_complete_when_it_is_recorded(
    project: Path, commands: List[List[str]]
) -> None:
    given = ["--config", "tiny/em", "--tasks", "WC", "--data", "senteval", "--output", "runs"]
    given += ["--cpu", "--set", "train.max-update=null", "--set", "train.max-epoch=9"]
    checkpoints = RunFolder(project / "runs/em/WC/seed-1").checkpoints
    save(checkpoints)  # as a training that was stopped
    assert main(given) == 0
    assert len(commands) == 2
    assert main(given) == 0
    assert len(commands) == 2


def test_a_finished_training_without_a_record_makes_no_further_update(
    project: Path, commands: List[List[str]]
) -> None:
    save(RunFolder(project / "runs/baseline/WC/seed-1").checkpoints)
    assert main([*GIVEN, "--rows", "baseline", "--tasks", "WC"]) == 0
    assert [command[2] for command in commands] == ["capsnmt.sentences.evaluate"]


def test_other_settings_in_a_folder_that_has_a_run_are_refused(
    project: Path, commands: List[List[str]], capsys: pytest.CaptureFixture
) -> None:
    assert main([*GIVEN, "--tasks", "WC"]) == 0
    assert main([*GIVEN, "--tasks", "WC", "--set", "train.lr=0.5"]) == 2
    assert "was trained with train.lr None, not 0.5" in capsys.readouterr().err
    (project / "senteval" / TASKS["WC"].file).write_text("tr\tI\ta\n", "utf-8")
    assert main([*GIVEN, "--tasks", "WC"]) == 2
    assert "was trained with data" in capsys.readouterr().err


def test_the_sentences_of_an_update_are_split_over_the_processes(
    project: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main([*GIVEN, "--tasks", "WC", "--cpu", "2", "--dry-run"]) == 0
    plan = capsys.readouterr().out
    assert "# 8 sentences per update = 4 sentences x 2 device(s) x 1 accumulated" in plan
    assert "--batch-size 4 --update-freq 1 --distributed-world-size 2" in plan
    assert main([*GIVEN, "--tasks", "WC", "--cpu", "1", "--dry-run"]) == 0
    assert "--batch-size 4 --update-freq 2 --distributed-world-size 1" in capsys.readouterr().out


def test_a_job_has_its_own_row_task_and_seed(project: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([*GIVEN, "--slurm", "--dry-run"]) == 0
    jobs = [line for line in capsys.readouterr().out.splitlines() if line.startswith("exec ")]
    assert [job.split("--output runs --cpu ")[1] for job in jobs] == [
        f"--config tiny/{row} --tasks {task} --seed 1 --requeue"
        for row in ("baseline", "em")
        for task in ("WC", "BShift")
    ]


def test_a_row_that_is_run_again_does_not_read_its_data_again(
    project: Path, commands: List[List[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: List[str] = []

    def hexdigest(path: Path, algorithm: str) -> str:
        read.append(path.name)
        return files.hexdigest(path, algorithm)

    monkeypatch.setattr("capsnmt.checksums.hexdigest", hexdigest)
    given = [*GIVEN, "--rows", "em", "--tasks", "WC"]
    assert main(given) == 0
    assert read.count(TASKS["WC"].file) == 1
    read.clear()
    assert main(given) == 0
    assert read == []
    (project / "senteval" / TASKS["WC"].file).write_text("tr\tI\ta\n", "utf-8")
    assert main(given) == 2
    assert read == [TASKS["WC"].file]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--rows", "mlmha"], "--rows: tiny has no row 'mlmha': choose from baseline, em or all"),
        (["--rows", "em,em"], "--rows: 'em,em': give different names"),
        (["--config", "em"], "--rows and --config exclude each other"),
        (["--tasks", "Length"], "'Length': choose from SentLen"),
        (["--baseline", "em"], "--baseline em: has no effect on sentence classifiers"),
        (["--set", "average.best=2"], "average: has no effect on a sentence classifier"),
        (["--set", "train.batch-size=2"], "train.batch-size: set batch.sentences-per-update"),
        (["--set", "train.probing-task=WC"], "train.probing-task: give --tasks"),
        (["--set", "batch.max-sentences=null"], "batch.max-sentences is not set"),
        (["--set", "train.mlmha=M-10"], "a sentence classifier has no decoder"),
        (["--cpu", "9"], "8 sentences per update cannot be split over 9 devices"),
        (["--data", "configs"], "word_content.txt: is missing: give --data DIR with SentEval's"),
        (["--data", "nowhere"], "--data nowhere: there is no such folder"),
    ],
)
def test_a_bad_setting_is_one_line(
    more: List[str], message: str, project: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main([*GIVEN, "--tasks", "WC", *more]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (project / "runs").exists()


def test_flags_of_classifiers_have_no_effect_on_translation(capsys: pytest.CaptureFixture) -> None:
    assert main(["--config", "multi30k/baseline", "--cpu", "--tasks", "WC", "--dry-run"]) == 2
    assert "--tasks WC: baseline is not a probing experiment" in capsys.readouterr().err


def prepare_commands(capsys: pytest.CaptureFixture, *flags: str) -> List[str]:
    """The words after ``python -m`` of the preparation in a plan."""
    assert main([*flags, "--cpu", "--dry-run"]) == 0, capsys.readouterr().err
    plan = capsys.readouterr().out.split("\n# prepare\n")
    if len(plan) == 1:
        return []
    line = next(line for line in plan[1].splitlines() if not line.startswith("#"))
    return shlex.split(line)[2:]


def test_each_data_set_is_downloaded_built_generated_or_given(
    capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    senteval = ["--dataset", "probing_li2019", "--tasks", "WC"]
    for given in (["--mirror", "http://l/"], ["--offline"]):
        download = ["capsnmt.sentences.senteval", "--output", "runs/probing_li2019/data"]
        assert prepare_commands(capsys, *senteval, *given) == [*download, *given]
    assert not prepare_commands(capsys, *senteval, "--data", str(tmp_path))
    built = prepare_commands(capsys, "--dataset", "probing_multi30k", "--data", __file__)
    assert built[:4] == [
        *("capsnmt.sentences.build", __file__),
        *("--output", "runs/probing_multi30k/data"),
    ]
    assert built[4:] == [
        *("--tokenize", "moses", "--length-bounds", "5,9,13,17,21,26"),
        *("--first-rank", "200", "--words", "200"),
    ]
    generated = ["capsnmt.sentences.logical_inference", "--output"]
    for dataset in ("logical_inference", "logical_inference_cpu"):
        found = prepare_commands(capsys, "--dataset", dataset)
        assert found == [*generated, f"runs/{dataset}/data"]
        assert not prepare_commands(capsys, "--dataset", dataset, "--data", str(tmp_path))


def test_data_that_was_built_from_a_text_needs_the_text_no_more(
    capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    given = ["--dataset", "probing_multi30k", "--tasks", "WC", "--prepared", str(tmp_path)]
    assert main([*given, "--cpu", "--dry-run"]) == 2
    assert "give --data FILE" in capsys.readouterr().err
    for name in ("manifest.json", TASKS["WC"].file):
        (tmp_path / name).write_text("{}", "utf-8")
    assert prepare_commands(capsys, *given) == []
    assert prepare_commands(capsys, *given, "--data", __file__)


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_row_has_the_settings_of_its_name(
    dataset: str, capsys: pytest.CaptureFixture
) -> None:
    assert len(DATASETS) == 5
    given = ["--dataset", dataset, "--rows", "all", "--data", __file__, "--cpu", "--dry-run"]
    tasks = ["--tasks", "WC"] if dataset.startswith("probing") else []
    assert main([*given, *tasks]) == 0
    plans = capsys.readouterr().out.split("#!/usr/bin/env bash\n")[1:]
    lines = [next(line for line in plan.splitlines() if "--save-dir" in line) for plan in plans]
    rows: Dict[str, str] = {Path(line.split("--save-dir ")[1]).parts[2]: line for line in lines}
    both = {"baseline", "aggregation", "disagreement", "both"}
    assert set(rows) == ({"baseline", "simple", "em"} if dataset == "probing_li2019" else both)
    aggregated = {"aggregation": "em", "both": "em", "em": "em", "simple": "simple"}
    for row, line in rows.items():
        assert ("--disagreement output" in line) == (row in ("disagreement", "both"))
        assert (f"--head-aggregation {aggregated.get(row)}" in line) == (row in aggregated)
        assert "--best-checkpoint-metric accuracy --maximize-best-checkpoint-metric" in line


def test_the_folder_records_the_settings_of_a_run(project: Path, commands: List[List[str]]) -> None:
    assert main([*GIVEN, "--rows", "em", "--tasks", "WC"]) == 0
    config = json.loads((project / "runs/em/WC/seed-1/config.json").read_text("utf-8"))
    assert (config["row"], config["seed"], config["task"]) == ("em", 1, "WC")
    assert list(config["vocabulary"]) == [TASKS["WC"].file]
    assert "--probing-task WC" in (project / "runs/em/WC/seed-1/commands.sh").read_text("utf-8")
