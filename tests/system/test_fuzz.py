"""The sweep of bad inputs, ``scripts/fuzz.sh``, notices each kind of fault and can be repeated."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import List

import pytest

from capsnmt.cli import run_command
from tests.fuzz import __main__ as sweep
from tests.fuzz.commands import COMMANDS
from tests.fuzz.endings import fault_of
from tests.fuzz.mutations import spoil_arguments, spoil_bytes, spoil_structure

pytestmark = [pytest.mark.system, pytest.mark.one_host]  # torch reads the checkpoints of both alike


def test_the_sweep_notices_a_fault(
    tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = ["--case", "1", "--commands", "average", "--work"]
    faults = {
        "traceback": lambda argv: 1 / 0,
        "status": lambda argv: 3,
        "no line": lambda argv: 2,
        "half-written": lambda argv: Path("x.part").write_text("half") and 0,
        "outside": lambda argv: Path("../x").write_text("out") and 0,
    }
    for name, body in faults.items():
        command = replace(COMMANDS["average"], main=body, arguments=("x",), spoilt=())
        monkeypatch.setitem(COMMANDS, "average", command)
        (tmp_path / name).mkdir()
        assert sweep.main([*once, str(tmp_path / name)]) == 1, name
    printed = capfd.readouterr().out
    for fault in ("a traceback", "status is 3", "without a line", "left x.part", "outside its"):
        assert fault in printed


@pytest.mark.parametrize("name", ["read-only", "full disk"])
def test_a_place_that_cannot_be_written_is_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    def write(argv: List[str]) -> int:
        Path("a").write_bytes(b"x" * (2 << 20))
        return 0

    monkeypatch.setitem(
        COMMANDS,
        "average",
        replace(COMMANDS["average"], main=lambda argv: run_command(lambda: write(argv))),
    )
    monkeypatch.setattr(sweep, "WEIGHTS", [int(place == name) for place in sweep.PLACES])
    monkeypatch.setattr(sweep, "fault_of", lambda status, errors, *_: errors)
    once = ["--case", "1", "--commands", "average", "--work", str(tmp_path)]
    assert sweep.main(once) == 1
    assert re.search("Read-only|denied|No space|too large", capfd.readouterr().out)


def test_a_traceback_of_fairseqs_own_is_not_ours() -> None:
    def fault(place: str) -> str:
        traceback = f'Traceback (most recent call last):\n  File "/{place}", line 1, in f\nE\n'
        return fault_of(1 << 8, traceback, Path("absent"), is_fairseqs=True)

    assert not fault("fairseq/options.py")
    assert not fault("capsnmt/host.py")  # the patches of fairseq are in many of its calls
    assert fault("capsnmt/models/config.py") == "it ends with a traceback"


def test_one_seed_is_one_sweep() -> None:
    def spoilt(seed: int) -> list:
        chance = random.Random(seed)
        return [
            spoil_bytes(b"some\ntext\n" * 9, chance),
            spoil_structure({"a": [1, {"b": 2}]}, chance),
            spoil_arguments(["--a", "b=c", "--d"], chance),
        ]

    assert repr(spoilt(1)) == repr(spoilt(1))
    assert repr(spoilt(1)) != repr(spoilt(2))
