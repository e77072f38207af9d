"""Changes of finished experiments: the launcher takes each for what it is.

The changes and the rule are in tests/launch/changes.py.
"""

from pathlib import Path
from typing import Callable, Dict

import pytest

from capsnmt.launch.__main__ import main
from tests.commands import made_once, succeed
from tests.kills.launch import write_sources
from tests.launch import changes
from tests.launch.changes import CHANGES, EXPERIMENTS, World

pytestmark = pytest.mark.system


@pytest.fixture
def fault(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> Callable[[str, str], str]:
    """``fault(EXPERIMENT, CHANGE)`` launches it changed; return in what the rule is broken."""

    def finished(experiment: str) -> World:
        def make(folder: Path) -> None:
            write_sources(folder / "sources")
            (folder / "out").mkdir()
            succeed("capsnmt.launch", *changes.world_of(experiment, folder).words)

        name = f"experiment-{[*EXPERIMENTS].index(experiment)}"
        return changes.world_of(experiment, made_once(tmp_path_factory, name, make))

    def launch(experiment: str, change: str) -> str:
        folder = tmp_path / f"{len([*tmp_path.iterdir()])}"
        world = changes.copy(finished(experiment), folder)
        what, apply = CHANGES[change]
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


@pytest.mark.parametrize("change", [*CHANGES][::3])  # with every commit
def test_what_differs_is_found(change: str, fault: Callable[[str, str], str]) -> None:
    assert fault("by updates", change) == ""


@pytest.mark.nightly
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_change_of_every_experiment(
    experiment: str, fault: Callable[[str, str], str]
) -> None:
    found = {change: fault(experiment, change) for change in CHANGES}
    assert {change: wrong for change, wrong in found.items() if wrong} == {}
