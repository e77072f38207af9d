"""The sweep of bad inputs, ``scripts/fuzz.sh``, notices each kind of fault and can be repeated."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz import __main__ as sweep
from tests.fuzz.commands import COMMANDS

pytestmark = pytest.mark.system


def test_the_sweep_notices_a_fault(
    tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    faults = {
        "traceback": lambda: 1 / 0,
        "status": lambda: 3,
        "no line": lambda: 2,
        "half-written": lambda: Path("x.part").write_text("half") and 0,
        "outside": lambda: Path("../x").write_text("out") and 0,
    }
    command = replace(COMMANDS["average"], arguments=("x",), spoilt=())
    monkeypatch.setitem(COMMANDS, "average", command)
    for name, body in faults.items():
        monkeypatch.setattr("capsnmt.checkpoints.average.main", body)
        assert sweep.main(["--case", "1", "--commands", "average"]) == 1, name
    printed = capfd.readouterr().out
    for fault in ("a traceback", "status is 3", "without a line", "left x.part", "outside its"):
        assert fault in printed
