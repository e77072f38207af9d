"""Probing and logical inference as a researcher runs them: real command lines on small data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Dict

import pytest
import torch
from capsnmt.launch.evaluate_classifier import count, load_classifier
from capsnmt.launch.evaluate_classifier import main as evaluate
from capsnmt.sentences.logical_inference.generate import generate
from capsnmt.sentences.probing.tasks import TASKS

from capsnmt import process, records
from capsnmt.checkpoints.load import load_checkpoint
from capsnmt.cli import ConfigurationError
from capsnmt.launch.cli import main as launch
from tests.commands import ON_CPU, command, in_two, train
from tests.launch.conftest import run_forked
from tests.support import PLUGIN

pytestmark = pytest.mark.system

SMALL = ["--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16", "--dropout", "0"]
# every mechanism of the encoder at once
EVERYTHING = {
    "head-aggregation": "em",
    "layer-aggregation": "em-routing",
    "capsule-routing-encoder": "both",
    "disagreement": "subspace,position,output",
}


@pytest.fixture(scope="module")
def logic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logic")
    generate(folder, 12, 4, 1)
    return folder


@pytest.fixture(scope="module")
def senteval(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BShift-like lines, in the words of the corpus of the system tests."""
    folder = tmp_path_factory.mktemp("senteval")
    lines = [f"{mark}\tO\tparts vote for wholes" for mark in ("tr", "va", "te") for _ in range(6)]
    lines += [f"{mark}\tI\tvote parts for wholes" for mark in ("tr", "va", "te") for _ in range(4)]
    (folder / TASKS["BShift"].file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_the_launcher_trains_every_mechanism_stops_early_and_evaluates(
    logic: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "run", run_forked)
    settings = {
        "task": "logical_inference",
        **EVERYTHING,
        **{flag[2:]: value for flag, value in zip(SMALL[::2], SMALL[1::2])},
        **{"criterion": "sentence_classification", "optimizer": "adam", "lr": 1e-9},
        **{"max-epoch": 9, "patience": 2, "num-workers": 0},
        **{"best-checkpoint-metric": "accuracy", "maximize-best-checkpoint-metric": True},
        **{"no-epoch-checkpoints": True, "log-interval": 1},
    }
    row = {
        **{"dataset": "logic", "arch": "logical_inference_transformer_tiny", "precision": "fp32"},
        **{"batch": {"sentences-per-update": 32, "max-sentences": 16}, "train": settings},
    }
    (tmp_path / "everything.yaml").write_text(json.dumps(row), encoding="utf-8")
    given = ["--config", str(tmp_path / "everything.yaml"), "--data", str(logic), "--threads", "1"]
    given += ["--output", str(tmp_path / "runs"), "--cpu"]
    assert launch(given) == 0, capsys.readouterr().err
    run = tmp_path / "runs" / "everything" / "seed-1"
    valid = [
        found
        for found in map(json.loads, (run / "train.log").read_text("utf-8").splitlines())
        if "valid_loss" in found
    ]
    # nothing is learned at this rate: the first epoch is the best, and two more were no better
    assert len(valid) == 3
    early = "early stop since valid performance hasn't improved for last 2 runs"
    assert early in (run / "console.log").read_text("utf-8")
    results = records.load(run / "results.json")
    for name in ("accuracy", "macro_f1"):
        assert results["splits"]["valid"][name] == pytest.approx(
            float(valid[0][f"valid_{name}"]), abs=2e-3
        )
    for bucket, found in results["splits"]["valid"]["by_bucket"].items():
        logged = float(valid[0][f"valid_accuracy_bucket_{bucket}"])
        assert found["accuracy"] == pytest.approx(logged, abs=2e-3)
    assert all(f"valid_disagreement_{term}" in valid[0] for term in ("subspace", "position"))
    assert set(results["splits"]["test"]["by_bucket"]) == {str(n) for n in range(13)}
    summary = records.load(run.parent / "summary.json")
    accuracy = results["splits"]["test"]["accuracy"]
    assert summary["scores"]["test"]["accuracy"]["values"] == [accuracy]
    capsys.readouterr()
    assert launch(given) == 0
    assert capsys.readouterr().out.count(": complete") == 2, "no stage ran"


@pytest.mark.one_host  # tests/system/test_two_processes.py trains with two on both
def test_two_processes_log_the_measures_of_all_examples(logic: Path, tmp_path: Path) -> None:
    arguments = [
        *(logic, "--user-dir", PLUGIN, "--task", "logical_inference", *SMALL, *ON_CPU),
        *("--arch", "logical_inference_transformer_tiny", "--max-update", 2, "--lr", 0.01),
        *("--criterion", "sentence_classification", "--optimizer", "adam", "--batch-size", 4),
        *("--disagreement", "output", "--save-dir", tmp_path, "--log-format", "simple"),
        "--no-epoch-checkpoints",
    ]
    log = in_two("fairseq_cli.train", arguments, tmp_path)
    (line,) = [line for line in log.splitlines() if "valid on" in line or "| valid |" in line]
    logged: Dict[str, str] = dict(re.findall(r"(\w+)[ =]([\d.]+)", line))
    model, task, updates = load_classifier(tmp_path / "checkpoint_last.pt")
    measures = count(model, task, "valid", 1000).measures(task.state.classes)
    assert updates == 2
    assert float(logged["accuracy"]) == pytest.approx(measures["accuracy"], abs=2e-3)
    assert float(logged["macro_f1"]) == pytest.approx(measures["macro_f1"], abs=2e-3)


@pytest.mark.one_host  # tests/sentences/test_classifier.py takes an encoder over on both
def test_a_translation_models_encoder_is_probed_as_it_was_trained(
    corpus: Path, senteval: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    mechanisms = ["--head-aggregation", "em", "--mlmha", "M-10"]
    train(corpus / "bin", tmp_path / "nmt", "capsnmt_transformer_tiny", 2, *mechanisms)
    source = tmp_path / "nmt" / "checkpoint_last.pt"
    probing = [
        *(senteval, "--user-dir", PLUGIN, "--task", "probing", "--probing-task", "BShift", *ON_CPU),
        *("--arch", "probing_transformer", "--criterion", "sentence_classification"),
        *("--probe-checkpoint", source, "--dictionary", corpus / "bin" / "dict.en.txt"),
        *("--optimizer", "adam", "--lr", 0.01, "--batch-size", 4, "--max-update", 3),
        *("--save-dir", tmp_path / "probe", "--no-epoch-checkpoints", "--dropout", "0.3"),
    ]
    done = command("fairseq_cli.train", *probing)
    assert done.returncode == 0, done.stderr[-3000:]
    states = [
        load_checkpoint(path)["model"] for path in (source, tmp_path / "probe/checkpoint_last.pt")
    ]
    # stock fairseq has an uninitialised buffer there
    encoder = [n for n in states[1] if n.startswith("encoder.") and "_float_tensor" not in n]
    assert "encoder.layers.0.self_attn.out_proj.beta_a" in encoder
    for name in encoder:
        assert torch.equal(states[0][name], states[1][name]), name
    # the probe does not depend on the checkpoint that it was made from
    source.unlink()
    report = tmp_path / "scores.json"
    probe = str(tmp_path / "probe" / "checkpoint_last.pt")
    evaluate([probe, "--splits", "valid,test", "--json", str(report), "--cpu"])
    assert "majority 60.00  (10 examples)" in capsys.readouterr().out
    assert records.load(report)["splits"]["test"]["majority"] == 60


def test_bad_data_and_checkpoints_are_one_line(
    senteval: Path, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="no such checkpoint"):
        evaluate([str(tmp_path / "none.pt")])
    with pytest.raises(ConfigurationError, match="'dev': choose from train, valid, test"):
        evaluate([str(tmp_path / "none.pt"), "--splits", "dev"])
    path = senteval / TASKS["Tense"].file
    path.write_text("tr\tPAST\tit ran\ntr\tPRES\tit runs\nva PRES it runs\n", encoding="utf-8")
    done = command(
        "fairseq_cli.train",
        *(senteval, "--user-dir", PLUGIN, "--task", "probing", "--probing-task", "Tense", *ON_CPU),
        *("--arch", "probing_transformer", "--criterion", "sentence_classification"),
        *("--optimizer", "adam", "--batch-size", 4, "--save-dir", tmp_path / "save"),
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"{path}, line 3: 0 tabs: a line is")
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "save").glob("*"))
