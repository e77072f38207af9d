"""A whole experiment by its real commands: killed, damaged, stopped, and still the same end."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from capsnmt.checkpoints.recovery import LAST, num_updates
from capsnmt.checkpoints.storage import load_checkpoint
from capsnmt.experiment.cli import main
from tests.experiment.test_process import _wait_for_end

UPDATES = 40
# Small files that every start writes anew.
REWRITTEN = ("config.json", "commands.sh", "scores.json", "summary.json", ".lock")
CONFIG = f"""
dataset: tiny
data: {{source-lang: en, target-lang: de, test-sets: {{news: test}}}}
arch: capsnmt_transformer_tiny
batch: {{tokens-per-update: 128, max-tokens: 128}}
precision: fp32
train:
  criterion: label_smoothed_cross_entropy
  optimizer: adam
  lr: 0.001
  encoder-layers: 1
  decoder-layers: 1
  encoder-embed-dim: 16
  decoder-embed-dim: 16
  encoder-ffn-embed-dim: 16
  decoder-ffn-embed-dim: 16
  encoder-attention-heads: 2
  decoder-attention-heads: 2
  share-all-embeddings: true
  num-workers: 0
  max-update: {UPDATES}
  save-interval-updates: 4
  keep-interval-updates: 2
  no-epoch-checkpoints: true
  log-interval: 2
average: {{last-updates: 2}}
generate: {{beam: 2, batch-size: 8}}
score: {{remove-bpe: subword_nmt}}
"""


@pytest.fixture(scope="module")
def command(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> List[str]:
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "tiny.yaml").write_text(CONFIG, encoding="utf-8")
    arguments = ["--config", str(folder / "tiny.yaml"), "--prepared", str(prepared)]
    return [*arguments, "--cpu", "--threads", "1", "--output", str(folder / "runs")]


def start(command: List[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "capsnmt.experiment", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def updates(launcher: subprocess.Popen[str]) -> Iterator[int]:
    """The number of updates in each line of progress."""
    assert launcher.stdout is not None
    for line in launcher.stdout:
        if line.startswith("  update "):
            yield int(line.split()[1].partition("/")[0])


def kill(launcher: subprocess.Popen[str]) -> None:
    """Kill a launcher while it runs a command, and wait for the end of that, too."""
    path = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    while not (children := path.read_text(encoding="utf-8").split()):
        time.sleep(0.01)
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    for child in children:
        _wait_for_end(int(child))


def results(folder: Path) -> Dict[str, Any]:
    """What a run is made for, without the times and speeds that fairseq writes beside it."""
    generated = (folder / "generate-news.txt").read_text(encoding="utf-8").splitlines()
    averaged = load_checkpoint(folder / "averaged.pt")["model"]
    return {
        "averaged": {
            name: averaged[name].numpy().tobytes()
            for name in averaged
            if not name.endswith("_float_tensor")  # uninitialised memory in fairseq 0.12.2
        },
        "generated": [line for line in generated if re.match(r"[STHDP]-\d+\t", line)],
        "scores": (folder / "scores.json").read_text("utf-8").replace(str(folder), "RUN"),
        "summary": (folder.parent / "summary.json").read_bytes(),
    }


def snapshot(folder: Path) -> Dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files if path.name not in REWRITTEN}


@pytest.mark.system
def test_killed_damaged_and_stopped_training_ends_as_if_nothing_happened(
    command: List[str], capsys: pytest.CaptureFixture
):
    folder = Path(command[-1]) / "tiny" / "seed-1"
    last = folder / "checkpoints" / LAST

    with start(command) as launcher:
        told = next(done for done in updates(launcher) if done >= 10)
        kill(launcher)
    assert num_updates(last) >= 8

    # Killed again, while fairseq copies its checkpoint to checkpoint_last.pt.
    os.truncate(last, last.stat().st_size // 2)
    with start(command) as launcher:
        resumed = next(updates(launcher))
        launcher.send_signal(signal.SIGINT)
        _output, errors = launcher.communicate(timeout=120)
    assert launcher.returncode == 130
    assert errors.splitlines()[-1] == "stopped by SIGINT: the same command resumes"
    assert 8 < resumed <= num_updates(last) < UPDATES

    for stage in ("average", "generate news", "score news"):
        with start(command) as launcher:
            assert launcher.stdout is not None
            lines = list(itertools.takewhile(f"-- {stage}\n".__ne__, launcher.stdout))
            kill(launcher)
        trained = "complete" if stage != "average" else "resuming"
        assert any(line.startswith(f"-- train: {trained}") for line in lines)

    assert main(command) == 0, capsys.readouterr().err
    assert "-- average: complete" in capsys.readouterr().out
    assert num_updates(last) == UPDATES
    assert num_updates(folder / "averaged.pt") == UPDATES
    logged = [json.loads(line) for line in (folder / "train.log").read_text().splitlines()]
    inner = [int(stats["num_updates"]) for stats in logged if "num_updates" in stats]
    # A launcher that is killed has not written the lines that its training had just said.
    missing = sorted(set(range(2, UPDATES + 1, 2)) - set(inner))
    assert missing in ([], [told + 2], [told + 2, told + 4])
    hypotheses = (folder / "generate-news.txt").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("H-") for line in hypotheses) == 6
    assert set(json.loads((folder / "scores.json").read_text())) == {"news"}
    summary = json.loads((folder.parent / "summary.json").read_text())
    assert summary["seeds"] == [1]
    assert set(summary["scores"]["news"]) == {"bleu", "chrf", "ter"}

    elsewhere = folder.parents[1].with_name("never-interrupted")
    assert main([*command[:-1], str(elsewhere)]) == 0
    whole = elsewhere / "tiny" / "seed-1"
    assert results(folder) == results(whole)
    capsys.readouterr()

    before = snapshot(folder)
    assert main(command) == 0
    told = capsys.readouterr().out
    assert told.count(": complete") == 4, told
    assert snapshot(folder) == before

    config = (folder / "config.json").read_text(encoding="utf-8")
    changed = [*command, "--set", "train.lr=0.01"]
    assert main(changed) == 2
    assert "was trained with train.lr 0.001, not 0.01" in capsys.readouterr().err
    assert main([*command, "--max-update", "20"]) == 2
    assert f"already has {UPDATES} updates, more than the 20" in capsys.readouterr().err
    assert snapshot(folder) == before
    assert (folder / "config.json").read_text(encoding="utf-8") == config


@pytest.mark.system
def test_data_that_is_not_what_the_configuration_says_is_told(
    command: List[str], capsys: pytest.CaptureFixture, tmp_path: Path
):
    elsewhere = ["--output", str(tmp_path)]
    assert main([*command, *elsewhere, "--set", "data.test-sets.old=test1"]) == 2
    assert "data.test-sets.old: there is no" in capsys.readouterr().err
    assert main([*command, *elsewhere, "--set", "data.test-sets.news=test1"]) == 2
    assert "data.test-sets.news: test1: " in capsys.readouterr().err
    assert main([*command, *elsewhere, "--pair", "en-fr"]) == 2
    assert "news.fr" in capsys.readouterr().err
