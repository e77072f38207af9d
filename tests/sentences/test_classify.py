"""Probing and logical inference as a researcher runs them: real command lines on small data."""

import json
import subprocess
from pathlib import Path
from typing import Callable

import pytest
import torch

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.models import CapsnmtTransformer
from capsnmt.sentences.evaluate import main as evaluate
from tests.commands import ON_CPU, command, succeed, train
from tests.support import PLUGIN

pytestmark = pytest.mark.system

EVALUATE = "capsnmt.sentences.evaluate"
SMALL = {"encoder-embed-dim": 16, "encoder-ffn-embed-dim": 16, "dropout": 0}
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
    made = ["--output", folder, "--train", 12, "--test", 4]
    succeed("capsnmt.sentences.logical_inference", *made)
    return folder


@pytest.fixture(scope="module")
def senteval(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BShift-like lines, in the words of the corpus of the system tests."""
    folder = tmp_path_factory.mktemp("senteval")
    lines = [f"{mark}\tO\tparts vote for wholes" for mark in ("tr", "va", "te") for _ in range(6)]
    lines += [f"{mark}\tI\tvote parts for wholes" for mark in ("tr", "va", "te") for _ in range(4)]
    (folder / "bigram_shift.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_two_processes_train_every_mechanism_stop_early_and_log_the_measures_of_all_examples(
    logic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the launcher, whose evaluation in one process has the same; fairseq validates it too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # torchrun leaves a folder
    settings = {
        **{"task": "logical_inference", **EVERYTHING, **SMALL},
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
    given = ["--config", tmp_path / "everything.yaml", "--data", logic, "--threads", "1"]
    given += ["--output", tmp_path / "runs", "--cpu", "2"]
    succeed("capsnmt.launch", *given)
    run = tmp_path / "runs" / "everything" / "seed-1"
    lines = map(json.loads, (run / "train.log").read_text("utf-8").splitlines())
    valid = [found for found in lines if "valid_loss" in found]
    # nothing is learned at this rate: the first epoch is the best, and two more were no better
    assert len(valid) == 3
    assert "hasn't improved for last 2 runs" in (run / "console.log").read_text("utf-8")
    splits = records.load(run / "results.json")["splits"]
    measured = {f"valid_{name}": splits["valid"][name] for name in ("accuracy", "macro_f1")}
    logged = {name: float(valid[0][name]) for name in measured}
    assert logged == pytest.approx(measured, abs=2e-3)
    assert {"valid_disagreement_subspace", "valid_disagreement_position"} <= valid[0].keys()
    assert set(splits["test"]["by_bucket"]) == {str(n) for n in range(13)}
    scores = records.load(run.parent / "summary.json")["scores"]["test"]
    assert scores["accuracy"]["values"] == [splits["test"]["accuracy"]]
    assert "training on 2 devices" in (run / "console.log").read_text("utf-8")
    host = [logic, "--user-dir", PLUGIN, "--task", "logical_inference", "--batch-size", 8, "--cpu"]
    succeed("fairseq_cli.validate", *host, "--path", run / "checkpoints" / "checkpoint_best.pt")


def test_a_training_does_not_resume_with_other_words_or_classes(
    senteval: Path, tmp_path: Path
) -> None:
    """As many others fit the model; of another number fairseq says that architectures differ."""

    def training(data: Path, *flags: object) -> subprocess.CompletedProcess:
        return command(
            *("fairseq_cli.train", data, "--user-dir", PLUGIN, *ON_CPU, *flags),
            *("--task", "probing", "--probing-task", "BShift", "--batch-size", 4),
            *("--arch", "probing_transformer_tiny", "--criterion", "sentence_classification"),
            *("--optimizer", "adam", "--max-update", 2, "--save-dir", tmp_path / "run"),
        )

    assert training(senteval).returncode == 0
    text = (senteval / "bigram_shift.txt").read_text("utf-8")
    others = tmp_path / "bigram_shift.txt"
    for kind, old, new, *flags in (
        ("classes", "\tI\t", "\tX\t"),
        ("symbols", "wholes", "unions"),
        ("symbols", "", "", "--min-count", 99),
    ):
        others.write_text(text.replace(old, new), encoding="utf-8")
        done = training(tmp_path, *flags)
        assert done.returncode != 0
        assert done.stderr.splitlines()[-1].startswith(f"the {kind} of the checkpoint")


@pytest.mark.one_host  # test_classifier.py takes an encoder over on both
def test_a_translation_models_encoder_is_probed_as_it_was_trained(
    corpus: Path, senteval: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    mechanisms = ["--head-aggregation", "em", "--mlmha", "M-10", "--drop-head", "0.2"]
    train(corpus / "bin", tmp_path / "nmt", "capsnmt_transformer_tiny", 2, *mechanisms)
    source, probe = (tmp_path / name / "checkpoint_last.pt" for name in ("nmt", "probe"))
    words = (corpus / "bin" / "dict.en.txt").read_text("utf-8").splitlines()
    exchanged = tmp_path / "dict.txt"  # it fits the embeddings
    exchanged.write_text("\n".join(reversed(words)), "utf-8")
    said = succeed(
        *("fairseq_cli.train", senteval, "--user-dir", PLUGIN, *ON_CPU),
        *("--task", "probing", "--probing-task", "BShift"),
        *("--arch", "probing_transformer", "--criterion", "sentence_classification"),
        *("--probe-checkpoint", source, "--dictionary", exchanged),
        *("--optimizer", "adam", "--lr", 0.01, "--batch-size", 4, "--max-update", 3),
        *("--save-dir", probe.parent, "--no-epoch-checkpoints", "--dropout", "0.3"),
    )
    assert "dict.txt is another dictionary" in said
    states = [torch.load(path, weights_only=False)["model"] for path in (source, probe)]
    # stock fairseq has an uninitialised buffer there
    encoder = [n for n in states[1] if n.startswith("encoder.") and "_float_tensor" not in n]
    assert "encoder.layers.0.self_attn.out_proj.beta_a" in encoder
    for name in encoder:
        assert torch.equal(states[0][name], states[1][name]), name
    # the probe does not depend on the checkpoint that it was made from
    source.unlink()
    report = tmp_path / "scores.json"
    said = succeed(EVALUATE, probe, "--splits", "valid,test", "--json", report, "--cpu")
    assert "majority 60.00  (10 examples)" in said
    assert records.load(report)["splits"]["test"]["majority"] == 60
    diverged = torch.load(probe, weights_only=False)
    diverged["model"]["classifier.0.bias"].fill_(torch.inf)
    torch.save(diverged, tmp_path / "diverged.pt")
    assert "0.bias has NaN or infinite weights" in refused(evaluate, tmp_path / "diverged.pt")
    # it does not translate
    with pytest.raises(ConfigurationError, match="has the task probing; give a translation model"):
        CapsnmtTransformer.from_pretrained(str(probe.parent), probe.name, str(corpus / "bin"))
