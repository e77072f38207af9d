"""Drawn changes of finished experiments: the launcher takes each for what it is.

The changes and the rule are in tests/launch/changes.py; faults of five kinds are noticed.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest

from capsnmt.launch.__main__ import main
from tests.commands import made_once, succeed
from tests.interpreter import interpreter
from tests.kills.launch import write_sources
from tests.launch import changes
from tests.launch.changes import CHANGES, EXPERIMENTS, World

pytestmark = [pytest.mark.system, pytest.mark.one_host]
Noticed = Callable[[str, str, str], str]


@pytest.fixture
def noticed(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> Noticed:
    """``noticed(EXPERIMENT, KIND, CHANGE)`` launches it; return in what the rule is broken."""
    monkeypatch.setattr(sys, "executable", str(interpreter()))
    copies: List[Path] = []

    def finished(experiment: str) -> World:
        def make(folder: Path) -> None:
            write_sources(folder / "sources")
            (folder / "out").mkdir()
            succeed("capsnmt.launch", *changes.world_of(experiment, folder).words)

        name = f"experiment-{[*EXPERIMENTS].index(experiment)}"
        return changes.world_of(experiment, made_once(tmp_path_factory, name, make))

    def launch(experiment: str, kind: str, change: str) -> str:
        copies.append(tmp_path / str(len(copies)))
        world = changes.copy(finished(experiment), copies[-1])
        what, apply = CHANGES[kind][change]
        apply(world)
        before = recorded(world)
        with monkeypatch.context() as patch:
            for name, value in world.environment.items():
                patch.setenv(name, value)
            status = main(world.words)
        printed = "".join(capsys.readouterr())
        if status == 2 and recorded(world) != before:
            return "it was refused, and changed what was there"
        return changes.fault(what, status, printed)

    return launch


def recorded(world: World) -> Dict[str, bytes]:
    """What a launch that is refused leaves as it is."""
    found = (path for path in world.folder.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in found if path.suffix in (".json", ".pt")}


def sample(seed: int, count: int) -> List[Tuple[str, str, str]]:
    return changes.drawn(random.Random(seed), count)


@pytest.mark.parametrize(("experiment", "kind", "change"), sample(1, 12))
def test_what_differs_is_found(experiment: str, kind: str, change: str, noticed: Noticed) -> None:
    assert noticed(experiment, kind, change) == ""


# What is planted: where in the package, what takes its place, and a kind of change that shows it.
FAULTS: List[Tuple[str, object, str]] = [
    # settings are not compared
    ("launch.execute.training_differences", lambda *_: iter(()), "settings"),
    # data have names, and no content
    ("launch.execute.signature", lambda path, known="": path.name, "data"),
    # a recipe is prepared once
    ("corpora.prepare.Preparation.check_unchanged", lambda self: None, "data"),
    # times are compared
    ("steps.signature", lambda path, known="": str(path.stat().st_mtime_ns), "folder"),
    # paths are compared
    ("steps.StepRecords._relative", lambda self, word: word, "folder"),
    # what is free is compared
    ("runs.trained_rows.FREE_FLAGS", set(), "settings"),
]


@pytest.mark.parametrize(("place", "instead", "kind"), FAULTS, ids=[each[0] for each in FAULTS])
def test_a_fault_is_noticed(
    place: str, instead: object, kind: str, noticed: Noticed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"capsnmt.{place}", instead)
    assert any(noticed("by updates", kind, change) for change in CHANGES[kind])


@pytest.mark.nightly
@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("kind", CHANGES)
def test_every_change_of_every_experiment(experiment: str, kind: str, noticed: Noticed) -> None:
    found = {change: noticed(experiment, kind, change) for change in CHANGES[kind]}
    assert {change: fault for change, fault in found.items() if fault} == {}
