"""From a mirror of a paper's corpus to the scores of a row, by its script, at toy size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from capsnmt import records
from tests.commands import environment
from tests.corpora.miniatures import MINIATURES, SPLITS, recipe_for
from tests.corpora.server import serving
from tests.support import REPO

# on the other host, data preparation and the launcher are tested each by itself
# nightly: tests/corpora ends with data-bins, and the demo goes from catalogues to scores
pytestmark = [pytest.mark.system, pytest.mark.one_host, pytest.mark.nightly]

# The corpus with every kind of archive. Each corpus is prepared down to its data-bin in
# tests/corpora, and the other scripts differ in the name of the dataset.
DATASET, SCRIPT = "wmt17_zh_en", "run_wmt17.sh"
TOY = [
    *("batch.tokens-per-update=256", "batch.max-tokens=256", "train.warmup-updates=2"),
    *("train.encoder-layers=2", "train.decoder-layers=1", "train.save-interval-updates=2"),
    *("train.encoder-embed-dim=16", "train.decoder-embed-dim=16"),
]


def run(*flags: object) -> None:
    """Run the script as a user does."""
    done = subprocess.run(
        ["bash", str(REPO / "scripts" / SCRIPT), *map(str, flags)],
        env={**environment(), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_from_a_mirror_to_scores_and_nothing_twice(tmp_path: Path) -> None:
    files, output = MINIATURES[DATASET](), tmp_path / "runs"
    settings = [f"data.recipe={recipe_for(DATASET, files, tmp_path)}", *TOY]
    flags = [
        *("--arch", "transformer_em_routing_tiny", "--name", "toy", "--output", output),
        *("--cpu", "--threads", "1", "--max-update", "4"),
        *(word for setting in settings for word in ("--set", setting)),
    ]
    with serving(files) as server:
        run(*flags, "--mirror", f"{server.address}/good")
        assert server.asked["good"] >= 1
    scores = output / "toy" / "seed-1" / "scores.json"
    first = records.load(scores)
    assert first["test"]["reference"]["segments"] == len(list(SPLITS[DATASET]["test"]))
    made = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()}
    scores.unlink()
    run(*flags)  # the mirror has stopped: complete files are not downloaded again
    assert records.load(scores) == first
    again = {path for path in made if path.stat().st_mtime_ns != made[path]}
    assert not [path for path in again if path.suffix in {".pt", ".bin", ".idx"}]
