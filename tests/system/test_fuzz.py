"""A small sweep of bad inputs over all commands; ``scripts/fuzz.sh`` runs a large one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.commands import COMMANDS
from tests.fuzz.mutations import spoil_arguments, spoil_bytes, spoil_structure

pytestmark = [pytest.mark.system, pytest.mark.one_host]  # torch reads the checkpoints of both alike


def test_every_spoilt_input_is_refused_in_one_line_or_has_a_result(
    capfd: pytest.CaptureFixture,
) -> None:
    assert main(["--cases", "60", "--seed", "1"]) == 0, capfd.readouterr().out[-3000:]


def test_the_sweep_notices_a_fault(
    capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = {
        "traceback": lambda argv: 1 / 0,
        "status": lambda argv: 3,
        "no line": lambda argv: 2,
        "half-written": lambda argv: Path("x.part").write_text("half") and 0,
        "outside": lambda argv: Path("../x").write_text("out") and 0,
    }
    for name, body in faults.items():
        command = COMMANDS["average"].__class__(body, ("x",), "x", ())
        monkeypatch.setitem(COMMANDS, "average", command)
        assert main(["--cases", "1", "--commands", "average"]) == 1, name
    printed = capfd.readouterr().out
    for fault in ("a traceback", "status is 3", "without a line", "left x.part", "outside its"):
        assert fault in printed


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
