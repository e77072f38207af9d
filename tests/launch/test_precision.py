"""The precision of a configuration, as flags of the training."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import List

import pytest
from capsnmt.launch.cli import main

from capsnmt.launch.devices import TRAINING
from capsnmt.modules import autocast

ROW = ["--config", "multi30k/em_routing"]


def planned(capsys: pytest.CaptureFixture, precision: str, *arguments: str) -> List[str]:
    """The flags of precision that a dry run prints for the training."""
    assert main([*ROW, "--set", f"precision={precision}", *arguments, "--dry-run"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if f"-m {TRAINING} " in line]
    words = shlex.split(line)
    found = ["--fp16"] if "--fp16" in words else []
    return found + (words[words.index("--autocast") :][:2] if "--autocast" in words else [])


@pytest.mark.usefixtures("bf16_machine")
@pytest.mark.parametrize(
    ("precision", "on_cpu", "on_gpu"),
    [
        ("fp32", [], []),
        ("fp16", [], ["--fp16"]),
        ("bf16", ["--autocast", "bf16"], ["--autocast", "bf16"]),
        ("auto", ["--autocast", "bf16"], ["--fp16"]),
    ],
)
def test_the_precision_reaches_the_training(capsys, precision: str, on_cpu: list, on_gpu: list):
    assert planned(capsys, precision, "--cpu") == on_cpu
    assert planned(capsys, precision, "--gpus", "1") == on_gpu


@pytest.mark.usefixtures("bf16_machine")
def test_without_bf16_auto_is_fp32_and_bf16_is_refused_before_anything_is_written(
    capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    stock = ["--arch", "transformer_tiny"]
    assert planned(capsys, "auto", "--cpu", *stock) == []
    monkeypatch.setattr(autocast, "cpu_flags", list)
    autocast.bf16_obstacle.cache_clear()
    assert planned(capsys, "auto", "--cpu") == []
    monkeypatch.chdir(tmp_path)
    assert main([*ROW, "--set", "precision=bf16", "--cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --set: precision: bf16: this CPU (")
    assert line.endswith("has no bf16 instructions: set fp32 or auto")
    assert not list(tmp_path.iterdir())
