"""Mean and standard deviation over the seeds with the same settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from capsnmt.evaluation.metrics import METRICS
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.summary import lines, summarise


def finish(
    folder: Path,
    seed: int,
    score: float,
    lr: float = 0.005,
    updates: int = 100,
    initial_updates: Optional[int] = None,
) -> RunFolder:
    """A finished run of which every metric is ``score``."""
    run = folder / f"seed-{seed}"
    run.mkdir(parents=True)
    settings = {
        "arch": "a",
        "batch": {"tokens-per-update": 4096},
        "data": {"test-sets": {"news": "test"}},
        "train": {"lr": lr, "max-update": updates},
    }
    config: Dict[str, Any] = {"row": "row", "seed": seed, "vocabulary": {}, "settings": settings}
    if initial_updates is not None:
        initial = {"row": "baseline", "checkpoint": "a.pt", "checksum": str(seed)}
        config["initial"] = {**initial, "updates": initial_updates}
    metrics = {metric: {"score": score, "signature": metric} for metric in METRICS}
    other = {metric: {"score": 0.0, "signature": metric} for metric in METRICS}
    systems = [
        {"name": "baseline", "path": "a", **other},
        {"name": "row", "path": "b", **metrics},
    ]
    reference = {"source": "a", "raw": True, "segments": 1}
    document = {"reference": reference, "systems": systems}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (run / "scores.json").write_text(json.dumps({"news": document}), encoding="utf-8")
    return RunFolder(run)


def test_the_row_itself_is_summarised_with_the_deviation_of_a_sample(tmp_path: Path):
    for seed, score in ((10, 43.0), (2, 41.0), (1, 42.0)):
        run = finish(tmp_path, seed, score)
    summary = summarise(run)
    assert summary.seeds == [1, 2, 10]
    for metric in METRICS:
        bleu = summary.scores["news"][metric]
        assert bleu.values == [42.0, 41.0, 43.0]
        assert bleu.mean == pytest.approx(42.0)
        assert bleu.std == pytest.approx(1.0)
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == summary.to_json()
    assert "bleu 42.00 +- 1.00" in next(lines(summary))


def test_one_seed_has_no_deviation(tmp_path: Path):
    summary = summarise(finish(tmp_path, 1, 42.0))
    assert summary.scores["news"]["bleu"].std is None
    assert "+-" not in next(lines(summary))


def test_seeds_with_other_settings_and_unfinished_ones_are_left_out(tmp_path: Path):
    run = finish(tmp_path, 1, 42.0)
    finish(tmp_path, 2, 99.0, lr=0.1)
    finish(tmp_path, 3, 99.0, updates=50)
    finish(tmp_path, 4, 99.0).scores.unlink()
    summary = summarise(run)
    assert summary.seeds == [1]
    assert summary.left_out_seeds == [2, 3]


def test_the_updates_of_the_initial_model_are_counted_next_to_the_own(tmp_path: Path):
    for seed in (1, 2):
        run = finish(tmp_path, seed, 42.0, initial_updates=80)
    finish(tmp_path, 3, 99.0, initial_updates=40)
    finish(tmp_path, 4, 99.0)
    summary = summarise(run)
    assert (summary.seeds, summary.left_out_seeds) == ([1, 2], [3, 4])
    assert (summary.updates, summary.init_from, summary.initial_updates) == (100, "baseline", 80)
    assert next(lines(summary)) == "initialised from baseline (80 updates), trained for 100 more"
