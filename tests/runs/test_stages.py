"""A stage runs again exactly when its command, an input or its output is not as it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Tuple

import pytest

from capsnmt.runs import stages
from capsnmt.runs.stages import StageRecords

COMMAND = "average", ("python", "-m", "average")


@pytest.fixture
def files(tmp_path: Path) -> Tuple[List[Path], List[Path]]:
    paths = [tmp_path / "input", tmp_path / "output"]
    for path in paths:
        path.write_text("whole")
    StageRecords(tmp_path / "stages.json").record(*COMMAND, paths[:1], paths[1:])
    return paths[:1], paths[1:]


def test_a_recorded_stage_is_complete_after_a_restart(tmp_path: Path, files):
    assert StageRecords(tmp_path / "stages.json").complete(*COMMAND, *files)


def test_another_command_runs_again(tmp_path: Path, files):
    assert not StageRecords(tmp_path / "stages.json").complete(
        "average", ("python", "--best"), *files
    )


@pytest.mark.parametrize("which", [0, 1])
def test_a_changed_file_runs_again(tmp_path: Path, files, which: int):
    files[which][0].write_text("other")
    assert not StageRecords(tmp_path / "stages.json").complete(*COMMAND, *files)


def test_a_missing_output_runs_again(tmp_path: Path, files):
    files[1][0].unlink()
    assert not StageRecords(tmp_path / "stages.json").complete(*COMMAND, *files)


def test_a_file_made_again_with_the_same_content_changes_nothing(tmp_path: Path, files):
    os.utime(files[0][0], (1, 1))
    assert StageRecords(tmp_path / "stages.json").complete(*COMMAND, *files)


def test_a_large_file_is_known_by_its_time(tmp_path: Path, files, monkeypatch):
    monkeypatch.setattr(stages, "CHECKSUM_BYTES", 2)
    StageRecords(tmp_path / "stages.json").record(*COMMAND, *files)
    assert StageRecords(tmp_path / "stages.json").complete(*COMMAND, *files)
    os.utime(files[0][0], (1, 1))
    assert not StageRecords(tmp_path / "stages.json").complete(*COMMAND, *files)
