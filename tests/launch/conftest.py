"""Plans and launches by the launcher in this process."""

import shutil
import sys
from pathlib import Path
from typing import Callable, List

import pytest

from capsnmt.launch.__main__ import main
from tests.interpreter import interpreter
from tests.small_row import BY_EPOCHS, arguments

Launch = Callable[..., str]


def trainings(text: str) -> List[str]:
    return [line for line in text.splitlines() if "--save-dir" in line and line[0] != "#"]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of the launcher are forks of one interpreter."""
    monkeypatch.setattr(sys, "executable", str(interpreter()))


@pytest.fixture
def run(launched: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, in ``runs``."""
    return shutil.copytree(launched / "runs", tmp_path / "runs") / "row" / "seed-1"


@pytest.fixture
def words(prepared: Path, tmp_path: Path) -> List[str]:
    """What launches that run, or one like it."""
    return [*arguments(prepared, tmp_path), *BY_EPOCHS]


@pytest.fixture
def plan(capsys: pytest.CaptureFixture) -> Launch:
    """``plan(FLAG, ...)`` returns what a dry run prints."""

    def print_plan(*arguments: object) -> str:
        status = main([*map(str, arguments), "--dry-run"])
        printed = capsys.readouterr()
        assert (status, printed.err) == (0, "")
        return printed.out

    return print_plan


@pytest.fixture
def launch(capsys: pytest.CaptureFixture) -> Launch:
    """``launch(FLAG, ..., status=0)`` runs the launcher's commands and returns all it prints."""

    def run(*arguments: object, status: int = 0) -> str:
        ended = main([*map(str, arguments)])
        printed = capsys.readouterr()
        assert ended == status, printed.out + printed.err
        assert not status or len(printed.err.strip().splitlines()) == 1, printed.err
        return printed.out + printed.err

    return run
