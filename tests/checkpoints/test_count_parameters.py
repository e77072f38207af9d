"""What is read from a finished translation run."""

from __future__ import annotations

from pathlib import Path

from capsnmt.checkpoints.load import count_parameters, save_checkpoint
from tests.support import build_system, every_system


@every_system
def test_the_parameters_of_a_checkpoint_are_those_of_its_model(name: str, tmp_path: Path) -> None:
    model = build_system(name)
    save_checkpoint({"model": model.state_dict()}, tmp_path / "model.pt")
    assert count_parameters(tmp_path / "model.pt") == sum(p.numel() for p in model.parameters())
