"""A report that cannot be written is one line, and leaves no file."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest

from capsnmt.report import __main__ as report
from tests.report.finished_runs import TRANSLATIONS, edit, runs


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def change(path: Path, key: str, value: Any) -> None:
    edit(path, lambda record: record.update({key: value}))


def without_metric(path: Path) -> None:
    scores = json.loads(path.read_text("utf-8"))
    del scores["test"]["systems"][-1]["outputs"][0]["scores"]["bleu"]
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
        "lacks the scores bleu",
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


@pytest.fixture
def refused(output: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Report on some runs, which is refused in one line without a file; return the line."""

    def run(*given: object) -> str:
        before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
        capfd.readouterr()
        assert report.main([*map(str, given), "--output", str(output / "report")]) == 2
        error = capfd.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before
        return error

    return run


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_run_is_one_line_that_names_it_and_nothing_is_written(
    output: Path, damage: str, refused: Callable[..., str]
) -> None:
    harm, expected = DAMAGES[damage]
    harm(output)
    error = refused(*runs(output))
    assert expected in error
    assert "em_routing" in error
    assert not (output / "report").exists()


def test_a_report_that_fails_leaves_the_earlier_one_as_it_was(
    output: Path, refused: Callable[..., str]
) -> None:
    assert report.main([*runs(output), "--output", str(output / "report")]) == 0
    remove(output / RUN / "generate-test.txt")
    refused(*runs(output))


def test_missing_data_is_one_line(output: Path, refused: Callable[..., str]) -> None:
    for row in TRANSLATIONS:
        change(output / row / "seed-1/config.json", "data", str(output / "data"))
    remove(output / "data" / "raw")
    assert re.match(r"error: \S*raw/test\.en: there is no such file", refused(*runs(output)))


def test_a_missing_library_is_one_line(
    output: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert refused(*runs(output)).startswith("error: matplotlib.figure is not installed: pip")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["baseline", "--samples", "-1"], "'-1' is not a whole number of at least 0"),
        (["baseline", "--samples", "many"], "'many'"),
        (["baseline", "--unknown"], "--unknown"),
        (["baseline", "--output", "runs.txt"], "runs.txt"),
        (["baseline/seed-1", "baseline/seed-1"], "is given twice"),
        (["unfinished"], "none of its 1 run(s) is finished"),
        (["nothing"], "config.json is missing"),
        (["absent"], "there is no such folder"),
    ],
)
def test_a_bad_command_line_is_one_line(
    output: Path,
    given: List[str],
    expected: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(output)
    shutil.copytree("baseline", "unfinished")
    Path("unfinished/seed-1/scores.json").unlink()
    Path("nothing").mkdir()
    Path("runs.txt").write_text("a file")
    assert report.main(["--output", "report", *given]) == 2
    error = capfd.readouterr().err
    assert (error.count("\n"), expected in error) == (1, True), error
    assert not Path("report").exists()
