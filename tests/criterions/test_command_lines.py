"""The criterion as a researcher uses it: from training to validation and generation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List

import pytest

from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.disagreement import TERMS
from tests.commands import ON_CPU, command, hypotheses, succeed, train
from tests.support import PLUGIN

pytestmark = pytest.mark.system

CRITERION = ["--criterion", "label_smoothed_cross_entropy_with_disagreement"]
EVERYTHING = [
    *(*CRITERION, "--disagreement", ",".join(TERMS)),
    *("--disagreement-attention", ",".join(ATTENTIONS), "--label-smoothing", "0.1"),
]
NAMES = {
    f"disagreement_{term}{attention}"
    for term in TERMS
    for attention in ("", "_enc_self", "_enc_dec", "_dec_self")
}


def logged(log: str, mark: str) -> List[Dict[str, str]]:
    """The numbers in the lines of a log that have the mark; 0.12.2's and the fork's formats."""
    lines = [line for line in log.splitlines() if re.search(mark, line)]
    return [dict(re.findall(r"(\w+)[ =] ?([\d.]+)", line)) for line in lines]


def test_train_validate_and_generate(corpus: Path, tmp_path: Path) -> None:
    hard = ["--update-freq", "2", "--checkpoint-activations", "--encoder-layerdrop", "0.3"]
    late = ["--disagreement-start-update", "1", "--disagreement-ramp-updates", "2"]
    log = train(corpus / "bin", tmp_path, "capsnmt_transformer_tiny", 4, *EVERYTHING, *hard, *late)
    updates, epochs = logged(log, r"\| train_inner \|"), logged(log, r"\| train \|")
    valid = logged(log, r"valid on|\| valid \|")
    assert [float(line["disagreement_weight"]) for line in updates] == [0, 0.5, 1, 1]
    for line in (*updates, *epochs, *valid):
        assert line.keys() >= NAMES
        for term in TERMS:
            parts = [float(v) for k, v in line.items() if k.startswith(f"disagreement_{term}_")]
            assert float(line[f"disagreement_{term}"]) == pytest.approx(sum(parts), abs=5e-3)
    checkpoint = ["--user-dir", PLUGIN, "--path", tmp_path / "checkpoint_last.pt", *ON_CPU]
    validation = command(
        "fairseq_cli.validate",
        *(corpus / "bin", *checkpoint, "--task", "translation", "--batch-size", "8"),
    )
    assert validation.returncode == 0, validation.stderr
    (again, *_) = logged(validation.stderr + validation.stdout, r"valid on|\| valid \|")
    for name in {"loss", "nll_loss", "disagreement_weight"} | NAMES:
        assert float(again[name]) == pytest.approx(float(valid[-1][name]), abs=2e-3)
    assert len(hypotheses(succeed("fairseq_cli.generate", corpus / "bin", *checkpoint))) == 8
