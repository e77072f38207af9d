"""The scripts of probing and logical inference: the commands that they would run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import List, Tuple

import pytest

from capsnmt.launch.__main__ import main
from tests.scripts import launches, planned

# plans are text: they are the same on every host
pytestmark = [pytest.mark.system, pytest.mark.one_host]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tuple[Path, Path]:
    """The current folder, which is empty, and one for the interpreter that does nothing."""
    here, stub = tmp_path / "here", tmp_path / "stub"
    here.mkdir()
    stub.mkdir()
    monkeypatch.chdir(here)
    return here, stub


def test_the_recorded_results_are_four_systems_on_three_tasks_and_with_three_seeds(
    folders: Tuple[Path, Path], capsys: pytest.CaptureFixture
) -> None:
    here, stub = folders
    script = "run_classification_on_cpu.sh"
    bad, started = launches(script, "--data", "nothing", cwd=here, stub=stub)
    assert (bad.returncode, bad.stderr.count("\n"), started) == (1, 1, [])
    assert "--data 'nothing': give a folder with propositional_logic" in bad.stderr

    (here / "data" / "propositional_logic").mkdir(parents=True)
    (here / "data" / "multi30k").mkdir()
    (here / "data" / "multi30k" / "train.en").touch()
    done, started = launches(script, "--data", "data", "--dry-run", cwd=here, stub=stub)
    assert done.returncode == 0, done.stderr
    for arguments in started:
        assert main(arguments) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if " -m " in line]
    assert Counter(words[words.index("-m") + 1] for words in lines) == {
        "capsnmt.sentences.build": 4 * 3,
        "capsnmt.launch.train": 4 * 3 + 4 * 3,
        "capsnmt.sentences.evaluate": 4 * 3 + 4 * 3,
    }
    assert [path.name for path in here.iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("flags", "systems"),
    [
        (["--dataset", "probing_li2019"], 3 * 10),
        (["--dataset", "probing_li2021"], 4 * 10),
        (["--dataset", "logical_inference", "--seeds", "1,2,3"], 4 * 3),
    ],
)
def test_all_rows_are_the_papers_systems(flags: List[str], systems: int) -> None:
    runs = planned([*flags, "--rows", "all"])
    assert len({run.folder.path for run in runs}) == len(runs) == systems
