"""A report that cannot be written is one line, and leaves no file."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, List

import pytest

from capsnmt.report import __main__ as report
from tests.report.finished_runs import TRANSLATIONS, edit, runs


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def change(path: Path, key: str, value: Any) -> None:
    edit(path, lambda record: record.update({key: value}))


def without_metric(path: Path) -> None:
    scores = json.loads(path.read_text("utf-8"))
    del scores["test"]["systems"][-1]["bleu"]
    path.write_text(json.dumps(scores), "utf-8")


RUN = "em_routing/seed-1"
DAMAGES = {
    "no folder": (lambda output: remove(output / RUN), "there is no such folder"),
    "unfinished": (lambda output: remove(output / RUN / "scores.json"), "scores.json is missing"),
    "no config": (lambda output: remove(output / RUN / "config.json"), "config.json is missing"),
    "half a config": (lambda output: (output / RUN / "config.json").write_text("{"), "not JSON"),
    "config of others": (
        lambda output: (output / RUN / "config.json").write_text("{}"),
        "config.json: made by another version of capsnmt: launch the row again with another",
    ),
    "a seed in words": (
        lambda output: change(output / RUN / "config.json", "seed", "one"),
        "config.json: seed: 'one': expected int",
    ),
    "no languages": (
        lambda output: edit(output / RUN / "config.json", lambda c: c["settings"].pop("data")),
        "settings: data.source-lang: None: expected str",
    ),
    "a flag that is a path": (
        lambda output: change(
            output / RUN / "config.json", "sweep", {"row": "a", "flag": "../b", "value": 1}
        ),
        "config.json: sweep.flag: '../b'",
    ),
    "no training": (lambda output: remove(output / RUN / "training.json"), "training.json"),
    "scores of others": (
        lambda output: (output / RUN / "scores.json").write_text("[]"),
        "scores.json: the file: []: expected",
    ),
    "a metric less": (
        lambda output: without_metric(output / RUN / "scores.json"),
        "scores.json: test.systems.1: the key bleu is missing",
    ),
    "no log": (lambda output: remove(output / RUN / "train.log"), "train.log"),
    "no parameters": (
        lambda output: change(output / RUN / "training.json", "parameters", None),
        "its number of parameters is not recorded: run the launcher's command again",
    ),
    "no output": (lambda output: remove(output / RUN / "generate-test.txt"), "generate-test.txt"),
    "short output": (
        lambda output: (output / RUN / "generate-test.txt").write_text("H-0\t-1\tx\n"),
        "has 1 segments",
    ),
    "no commands": (lambda output: remove(output / RUN / "commands.sh"), "commands.sh"),
    "other row": (lambda output: change(output / RUN / "config.json", "row", "x"), "lacks"),
    "other test sets": (lambda output: change(output / RUN / "scores.json", "more", json.loads(
        (output / RUN / "scores.json").read_text("utf-8"))["test"]), "has the test sets"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_run_is_one_line_that_names_it_and_nothing_is_written(
    output: Path, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    harm, expected = DAMAGES[damage]
    harm(output)
    capfd.readouterr()
    assert report.main([*runs(output), "--output", str(output / "report")]) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert expected in error
    assert "em_routing" in error
    assert not (output / "report").exists()


def test_missing_data_is_one_line_and_nothing_is_written(
    output: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for row in TRANSLATIONS:
        change(output / row / "seed-1/config.json", "data", str(output / "data"))
    remove(output / "data" / "raw")
    assert report.main([*runs(output), "--output", str(output / "report")]) == 2
    assert re.fullmatch(
        r"error: \S*raw/test\.en: there is no such file.*\n", capfd.readouterr().err
    )
    assert not (output / "report").exists()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--samples", "-1"], "'-1' is not a whole number of at least 0"),
        (["--samples", "many"], "'many'"),
        (["--unknown"], "--unknown"),
        (["--output", "runs.txt"], "runs.txt"),
    ],
)
def test_a_bad_flag_is_one_line(
    output: Path, flags: List[str], expected: str, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(output)
    (output / "runs.txt").write_text("a file")
    assert report.main([*runs(output), "--output", "report", *flags]) == 2
    error = capfd.readouterr().err
    assert (error.count("\n"), expected in error) == (1, True), error
    assert not (output / "report").exists()


def test_a_run_given_twice_is_refused(output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert report.main([runs(output)[0]] * 2 + ["--output", str(output / "report")]) == 2
    assert "is given twice" in capfd.readouterr().err


def test_without_matplotlib_one_line_names_it_and_nothing_is_written(
    output: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert report.main([*runs(output), "--output", str(output / "report")]) == 2
    assert capfd.readouterr().err.startswith("error: matplotlib.figure is not installed: pip")
    assert not any((output / "report").glob("*"))


def test_a_report_that_fails_leaves_the_earlier_one_as_it_was(output: Path) -> None:
    assert report.main([*runs(output), "--output", str(output / "report")]) == 0
    before = {path: path.read_bytes() for path in (output / "report").iterdir()}
    remove(output / RUN / "generate-test.txt")
    assert report.main([*runs(output), "--output", str(output / "report")]) == 2
    assert {path: path.read_bytes() for path in (output / "report").iterdir()} == before
