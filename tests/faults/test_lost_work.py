"""A launch loses no work: whatever surrounds it, stops it or repeats it, and however it is set."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import List

import pytest

from capsnmt import files
from capsnmt.launch.__main__ import main as launch
from capsnmt.process import package_path
from capsnmt.steps import Step, StepRecords
from tests.commands import printed
from tests.interpreter import executable, interpreter
from tests.kills.launch import LAUNCHER
from tests.small_row import BY_EPOCHS, arguments
from tests.support import PLUGIN, REPO

# without UTF-8, no Python starts whose environment names another folder
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0"} if str(REPO).isascii() else {"PYTHONIOENCODING": "ascii"}


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory, prepared: Path) -> List[str]:
    """The flags of a row that trains in a second; they lack ``--output``."""
    return arguments(prepared, tmp_path_factory.mktemp("row"))[:-2]


@pytest.mark.system
@pytest.mark.nightly  # an interpreter for each of its stages
def test_a_launch_without_utf8_and_without_asserts_ends_with_its_scores(
    row: List[str], tmp_path: Path
):
    words = [sys.executable, "-m", LAUNCHER, *row, *BY_EPOCHS, "--output", tmp_path]
    printed(words, **ASCII, PYTHONOPTIMIZE="1")
    folder = tmp_path / "row"
    scores = json.loads((folder / "seed-1" / "scores.json").read_text("utf-8"))
    assert list(scores) == ["news"]
    assert json.loads((folder / "summary.json").read_text("utf-8"))["seeds"] == [1]


@pytest.mark.system
def test_a_training_on_a_full_disk_names_the_file(
    row: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Files of at most 80 KiB stand for the disk: its log fits, its checkpoint does not."""
    program = shlex.quote(str(interpreter()))
    limited = f'#!/bin/sh\nshift\nexec {program} -m tests.faults.surroundings:on_a_full_disk "$@"\n'
    monkeypatch.setattr(sys, "executable", str(executable(tmp_path / "python", limited)))
    assert launch([*row, "--output", str(tmp_path)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    found = r"^error: train failed with .* \(OSError: .*File too large: .*\.pt"
    assert re.search(found, last), last


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file whose checksum is remembered, in a folder of its own, made by `average`."""
    model = tmp_path / "made" / "model.pt"
    model.parent.mkdir()
    model.touch()
    os.truncate(model, 1 << 25)
    steps_of(model).record(average(model))
    return model


def average(model: Path, *arguments: str) -> Step:
    return Step("average", (model,), arguments=arguments)


def steps_of(model: Path) -> StepRecords:
    return StepRecords(model.with_name("steps.json"))


def test_a_large_file_is_known_by_its_content_wherever_it_was_copied_and_read_once(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied, restored or checked out it has another time; a copy of a run translated again."""
    read, whole = [], files.sha256
    monkeypatch.setattr(files, "sha256", lambda path: read.append(path) or whole(path))
    copy = shutil.copytree(large.parent, tmp_path / "copy", copy_function=shutil.copyfile)
    model = copy / large.name
    os.utime(model, ns=(0, 10**18 + 1))
    for _ in range(3):
        assert steps_of(model).complete(average(model))
    assert len(read) == 1
    with open(model, "r+b") as file:
        file.write(b"x")
    os.utime(model, ns=(0, 10**18 + 2))
    assert not steps_of(model).complete(average(model))


@pytest.mark.parametrize("argument", ["{}", "--path={}"])
def test_a_step_below_an_equals_sign_is_the_same_by_any_path(
    argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--output lr=0.1/runs`` was made again, and submitted again, by ``--resume``."""
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    relative, absolute = (
        Step("average", (model,), arguments=(argument.format(model),))
        for model in (Path("lr=0.1/model.pt"), folder / "model.pt")
    )
    (folder / "model.pt").touch()
    StepRecords(Path("lr=0.1/steps.json")).record(relative)
    assert StepRecords(folder / "steps.json").complete(absolute)


def test_files_where_a_command_is_run_hide_no_modules_of_its_children(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit(3)\n", "utf-8")
    printed([sys.executable, "-m", "capsnmt.evaluation", "--help"], tmp_path, **package_path())


@pytest.mark.system
def test_another_interpreter_and_another_checkout_repeat_nothing(
    prepared: Path, launched: Path, tmp_path: Path
):
    python = tmp_path / "venv" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    checkout = tmp_path / "checkout"
    project = Path(PLUGIN).parent
    for name in ("capsnmt", "configs", "data_prep"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(project / name, checkout / name, ignore=ignored)
    libraries = os.pathsep.join(path for path in sys.path if "site-packages" in path)
    elsewhere = {"PYTHONPATH": f"{checkout}{os.pathsep}{libraries}"}
    # a setting that changes no update, and so does not start a finished training again
    logged = [*BY_EPOCHS, "--set", "train.log-interval=1"]
    words = ["-m", LAUNCHER, *arguments(prepared, launched), *logged]
    said = printed([python, *words], **elsewhere)
    stages = [line for line in said.splitlines() if line.startswith("-- ")]
    assert len(stages) == 4
    assert [line for line in stages if ": complete" not in line] == []
