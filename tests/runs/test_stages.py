"""A stage runs again exactly when its command, an input or an output has changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Sequence, Tuple

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.launch.stage import Stage
from capsnmt.runs import stages
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.stages import StageRecords

Files = Tuple[List[Path], List[Path]]
COMMAND = ("--last", "5")


def average(files: Files, argv: Sequence[str] = COMMAND) -> Stage:
    return Stage("average", ("python", "-m", "average"), tuple(argv), *map(tuple, files))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    paths = [tmp_path / "input", tmp_path / "output"]
    for path in paths:
        path.write_text("complete")
    StageRecords(tmp_path / "stages.json").record(average((paths[:1], paths[1:])))
    return paths[:1], paths[1:]


def test_a_recorded_stage_is_complete_after_a_restart(tmp_path: Path, files):
    assert StageRecords(tmp_path / "stages.json").complete(average(files))


def test_another_command_runs_again(tmp_path: Path, files):
    assert not StageRecords(tmp_path / "stages.json").complete(average(files, ["--best"]))


@pytest.mark.parametrize("content", ["null", "[]", '{"average": 3}', '{"average": {"k": ""}}', "["])
def test_a_damaged_record_is_one_line(tmp_path: Path, content: str):
    (tmp_path / "stages.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"stages\.json: .* delete") as error:
        StageRecords(tmp_path / "stages.json")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["null", "[1]", '{"row": "a", "seed": null}',
                                     '{"row": "a", "seed": 1, "baseline": [1]}'])  # fmt: skip
def test_a_damaged_description_is_one_line(tmp_path: Path, content: str):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"config\.json: lacks a"):
        RunFolder(tmp_path).read_description()


@pytest.mark.parametrize("which", [0, 1])
def test_a_changed_file_runs_again(tmp_path: Path, files, which: int):
    files[which][0].write_text("other")
    assert not StageRecords(tmp_path / "stages.json").complete(average(files))


def test_a_missing_output_runs_again(tmp_path: Path, files):
    files[1][0].unlink()
    assert not StageRecords(tmp_path / "stages.json").complete(average(files))


def test_a_file_made_again_with_the_same_content_changes_nothing(tmp_path: Path, files):
    os.utime(files[0][0], (1, 1))
    assert StageRecords(tmp_path / "stages.json").complete(average(files))


def test_a_large_file_is_identified_by_its_time(tmp_path: Path, files, monkeypatch):
    monkeypatch.setattr(stages, "CHECKSUM_BYTES", 2)
    StageRecords(tmp_path / "stages.json").record(average(files))
    assert StageRecords(tmp_path / "stages.json").complete(average(files))
    os.utime(files[0][0], (1, 1))
    assert not StageRecords(tmp_path / "stages.json").complete(average(files))


def test_a_stage_is_the_same_however_its_folders_are_spelled(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    records = []
    for folder in (Path("runs"), tmp_path / "runs"):
        words = ["--data", str(folder), f"em={folder / 'em' / 'out'}", "data"]
        record = StageRecords(tmp_path / "stages.json", [folder])
        records.append(record)
        record.record(average(([], []), words))
    assert records[0].records == records[1].records
    assert records[0].complete(average(([], []), words))
    assert not records[0].complete(average(([], []), [*words, "runs-2"]))
