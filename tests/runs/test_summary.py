"""``summary.json`` has the means over the seeds that are one training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from capsnmt.evaluation.scores import METRICS
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.summary import lines, summarise
from tests.report.finished_runs import edit, write_run


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first seed of a row."""
    return write_run(tmp_path_factory.mktemp("runs"), "em_routing")


def add_seed(
    first: Path,
    row: Path,
    seed: int,
    score: float,
    initial_updates: Optional[int] = None,
    **train: Any,
) -> RunFolder:
    """Another seed, of which every metric is ``score``."""
    folder = RunFolder(shutil.copytree(first, row / f"seed-{seed}"))

    def change(config: Dict[str, Any]) -> None:
        config["seed"] = seed
        config["settings"]["train"].update(train)

    def set_scores(scores: Dict[str, Any]) -> None:
        for metric in METRICS:
            (output,) = scores["test"]["systems"][0]["outputs"]
            output["scores"][metric]["score"] = score

    edit(folder.config, change)
    edit(folder.scores, set_scores)
    if initial_updates is not None:
        initial = {"row": "baseline", "checkpoint": "a.pt", "checksum": str(seed)}
        initial = {**initial, "updates": initial_updates}
        edit(folder.training, lambda training: training.update(initial=initial))
    return folder


def summary_of(run: RunFolder) -> Dict[str, Any]:
    summarise(run)
    return json.loads(run.summary.read_text("utf-8"))


def test_a_row_has_the_mean_and_the_deviation_of_a_sample(first: Path, tmp_path: Path) -> None:
    for seed, score in ((10, 43.0), (2, 41.0), (1, 42.0)):
        run = add_seed(first, tmp_path, seed, score)
    summary = summary_of(run)
    assert (summary["seeds"], summary["left-out-seeds"]) == ([1, 2, 10], [])
    assert summary["scores"]["test"].keys() == METRICS.keys()
    for score in summary["scores"]["test"].values():
        assert score["values"] == [42.0, 41.0, 43.0]
        assert (score["mean"], score["std"]) == pytest.approx((42.0, 1.0))
    assert "bleu 42.00 +- 1.00" in next(lines(summarise(run)))


def test_seeds_with_other_settings_and_unfinished_ones_are_left_out(
    first: Path, tmp_path: Path
) -> None:
    run = add_seed(first, tmp_path, 1, 42.0)
    add_seed(first, tmp_path, 2, 99.0, lr=0.5)
    add_seed(first, tmp_path, 3, 99.0, **{"max-update": 50})
    add_seed(first, tmp_path, 4, 99.0).scores.unlink()
    add_seed(first, tmp_path, 5, 42.0, **{"log-interval": 7, "save-interval-updates": 3})
    other = add_seed(first, tmp_path, 6, 99.0)
    edit(other.training, lambda training: training.update(vocabulary={"dict.en.txt": "0"}))
    summary = summary_of(run)
    assert (summary["seeds"], summary["left-out-seeds"]) == ([1, 5], [2, 3, 6])


def test_the_updates_of_the_initial_model_are_counted_next_to_the_own(
    first: Path, tmp_path: Path
) -> None:
    for seed in (1, 2):
        run = add_seed(first, tmp_path, seed, 42.0, initial_updates=80)
    add_seed(first, tmp_path, 3, 99.0, initial_updates=60)
    add_seed(first, tmp_path, 4, 99.0)
    summary = summary_of(run)
    assert (summary["seeds"], summary["left-out-seeds"]) == ([1, 2], [3, 4])
    assert (summary["updates"], summary["init-from"], summary["initial-updates"]) == (
        *(40, "baseline", 80),
    )
    assert next(lines(summarise(run))) == (
        "initialised from baseline (80 updates), trained for 40 more"
    )
