"""The folder that the tests of faults share: a row, its corpus, and finished runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Dict

import pytest
import torch

from tests.commands import ON_CPU, succeed
from tests.faults import launched
from tests.kills.launch import write_sources
from tests.support import PLUGIN
from tests.translate.conftest import runs

__all__ = ["runs"]


@pytest.fixture(scope="session")
def data(corpus: Path) -> Path:
    """The small corpus as fairseq's commands read it."""
    return corpus / "bin"


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data: the data-bin, the raw test set, and the manifest."""
    return launched.prepared(tmp_path_factory)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, runs: Dict[str, Path]) -> Path:
    """A folder.

    ``tiny.yaml``, ``recipe.yaml`` and ``corpus`` are a row that can be launched. ``runs/plain``
    holds two seeds of a row; their records name the data by ``runs/data``, as a launch with
    relative paths did before it recorded the whole path. ``weights.pt`` has no settings.
    """
    folder = tmp_path_factory.mktemp("world")
    write_sources(folder)
    run = runs["plain"]
    config = json.loads((run / "config.json").read_text("utf-8"))
    shutil.copytree(config["data"], folder / "runs" / "data")
    for seed in (1, 2):
        copied = shutil.copytree(run, folder / "runs" / "plain" / f"seed-{seed}")
        changed = {**config, "seed": seed, "data": "runs/data"}
        (copied / "config.json").write_text(json.dumps(changed), "utf-8")
    checkpoint = torch.load(run / "checkpoints" / "checkpoint_last.pt", weights_only=False)
    torch.save({"model": checkpoint["model"]}, folder / "weights.pt")
    return folder


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trained classifier of logical inference, ``checkpoint_last.pt``."""
    folder = tmp_path_factory.mktemp("classifier")
    succeed(
        "capsnmt.sentences.logical_inference",
        *("--output", folder / "data", "--train", "12", "--test", "4"),
    )
    succeed(
        "fairseq_cli.train",
        *(folder / "data", "--user-dir", PLUGIN, "--task", "logical_inference", *ON_CPU),
        *("--arch", "logical_inference_transformer_tiny", "--criterion", "sentence_classification"),
        *("--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16", "--optimizer", "adam"),
        *("--lr", "0.001", "--batch-size", "8", "--max-update", "1", "--save-dir", folder),
        *("--disable-validation",),
    )
    return folder
