"""COMET with a model on this disk. The package is a stub with the interface of unbabel-comet 2.2.7.

The real one needs numpy < 2, so the main host cannot have it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Dict, List

import pytest

from capsnmt.evaluation.__main__ import main
from tests.evaluation.outputs import write_lines
from tests.evaluation.test_segment_scores import as_json, refuse

STUB = """
import logging
import os

logging.basicConfig(level=logging.INFO, force=True)  # pytest, unlike a user, has handlers

def load_from_checkpoint(
    checkpoint_path, reload_hparams=False, strict=False, local_files_only=False
):
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
    with open(checkpoint_path) as file:
        content = file.read()
    if content != "weights":
        raise Exception(f"not the weights of a model: {content}\\nsecond line")
    return Model()

class Prediction(dict):
    __getattr__ = dict.__getitem__

class Model:
    def predict(
        self, samples, batch_size=16, gpus=1, devices=None, mc_dropout=0, progress_bar=True,
        accelerator="auto", num_workers=None, length_batching=True,
    ):
        print("Predicting", batch_size, gpus)
        for sample in samples:
            assert set(sample) == {"src", "mt", "ref"} and sample["src"].startswith("source ")
        scores = [float(sample["mt"] == sample["ref"]) for sample in samples]
        return Prediction(scores=scores, system_score=sum(scores) / len(scores))
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint in the layout of a downloaded model, and the package."""
    site = tmp_path / "site"
    for name, content in {
        "comet/__init__.py": STUB,
        "unbabel_comet-2.2.7.dist-info/METADATA": "Name: unbabel-comet\nVersion: 2.2.7\n",
    }.items():
        (site / name).parent.mkdir(parents=True)
        (site / name).write_text(content, "utf-8")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "comet", raising=False)
    path = tmp_path / "wmt22-comet-da" / "checkpoints" / "model.ckpt"
    path.parent.mkdir(parents=True)
    path.write_text("weights")
    (path.parents[1] / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    yield path
    sys.modules.pop("comet", None)


@pytest.fixture
def arguments(files: Dict[str, str], tmp_path: Path) -> List[str]:
    source = write_lines(tmp_path / "source", [f"source {number}" for number in range(12)])
    systems = [f"good={files['good']}", "--baseline", f"base={files['half']}"]
    return [*systems, "--reference", files["reference"], "--comet-source", str(source)]


def test_comet_scores_every_output_offline_with_a_signature(
    model: Path, arguments: List[str], capsys: pytest.CaptureFixture
) -> None:
    flags = ["--comet-model", f"comet22={model}", "--resamples", "50"]
    document = as_json(capsys, *arguments, *flags)
    base, good = (system["segment_means"]["comet22"] for system in document["systems"])
    assert (base["score"], good["score"]) == (0.5, 1.0)
    checksum = hashlib.sha256(b"weights").hexdigest()[:12]
    signature = f"model:model.ckpt|sha256:{checksum}|precision:fp32|version:2.2.7"
    assert good["signature"] == f"bs:50|seed:12345|{signature}"
    assert document["systems"][1]["significance"]["comet22"]["p_value"] < 0.05
    assert document["versions"]["unbabel-comet"] == "2.2.7"


def test_progress_goes_to_stderr_and_flags_to_the_model(
    model: Path, arguments: List[str], capsys: pytest.CaptureFixture
) -> None:
    flags = ["--comet-model", str(model), "--comet-gpu", "--comet-batch-size", "3"]
    assert main([*arguments, *flags, "--resamples", "5", "--json"]) == 0
    printed = capsys.readouterr()
    assert "COMET" in json.loads(printed.out)["systems"][0]["segment_means"]
    assert "Predicting 3 1" in printed.err
    assert "Pre-computing" not in printed.err


def test_without_the_package_one_line_names_it(
    arguments: List[str], tmp_path: Path, capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "comet", None)
    line = refuse(capsys, *arguments, "--comet-model", str(tmp_path / "model.ckpt"))
    assert "pip install unbabel-comet" in line


def test_what_is_wrong_with_a_model_is_one_line(
    model: Path, arguments: List[str], capsys: pytest.CaptureFixture
) -> None:
    assert "there is no such file" in refuse(capsys, *arguments, "--comet-model", f"{model}x")
    model.write_text("html")
    line = refuse(capsys, *arguments, "--comet-model", str(model))
    assert "cannot load it offline: not the weights of a model: html" in line
    (model.parents[1] / "hparams.yaml").unlink()
    line = refuse(capsys, *arguments, "--comet-model", str(model))
    assert f"there is no {model.parents[1] / 'hparams.yaml'}" in line


def test_flags_that_cannot_work_are_one_line(
    model: Path, files: Dict[str, str], arguments: List[str], capsys: pytest.CaptureFixture
) -> None:
    system = f"good={files['good']}"
    comet = ["--comet-model", str(model)]
    for flags, complaint in (
        ([*arguments, "--comet-gpu"], "--comet-source has no effect without --comet-model"),
        ([system, *comet], "give --comet-source FILE"),
        ([*arguments, "--comet-model", f"ter={model}"], "'ter' cannot name the metric"),
        ([*arguments, *comet, "--segment-scores", "COMET", "good=x"], "has a metric COMET"),
        ([system, *comet, "--comet-source", files["latin"]], "has 3 segments, but the reference"),
    ):
        assert complaint in refuse(capsys, *flags)
