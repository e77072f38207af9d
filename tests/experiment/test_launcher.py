"""A complete experiment by its real commands: killed, damaged and stopped, with equal results."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterator, List, Optional

import pytest

from capsnmt.checkpoints.recovery import LAST, num_updates
from capsnmt.checkpoints.storage import load_checkpoint
from capsnmt.evaluation.metrics import METRICS
from capsnmt.experiment.cli import main
from tests import forked
from tests.commands import environment
from tests.experiment.test_process import _wait_for_end

UPDATES = 40
# Small files that every start writes again.
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


class Launcher:
    """``python -m capsnmt.experiment`` as a process whose output is read while it runs."""

    def __init__(self, command: List[str], folder: Path) -> None:
        output, self.errors = folder / "output", folder / "errors"
        self.errors.touch()
        os.mkfifo(output)
        streams = [Path(os.devnull), output, self.errors]
        self.process = forked.start("capsnmt.experiment", command, environment(), streams)
        self.output = output.open(encoding="utf-8")

    def updates(self) -> Iterator[int]:
        """The number of updates in each line of progress."""
        for line in self.output:
            if line.startswith("  update "):
                yield int(line.split()[1].partition("/")[0])

    def send(self, signum: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signum)

    def end(self) -> Optional[int]:
        """Read the output up to its end; return the exit status."""
        self.output.read()
        self.process.join()
        return self.process.exitcode

    def kill(self) -> None:
        """Kill it while it runs a command, and wait until that has ended, too."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        while not (children := path.read_text(encoding="utf-8").split()):
            time.sleep(0.01)
        self.send(signal.SIGKILL)
        self.process.join()
        for child in children:
            _wait_for_end(int(child))


@contextmanager
def started(command: List[str]) -> Iterator[Launcher]:
    """Start the launcher; kill it if the test fails before its end."""
    with TemporaryDirectory() as folder:
        launcher = Launcher(command, Path(folder))
        try:
            yield launcher
        finally:
            launcher.output.close()
            launcher.process.kill()
            launcher.process.join()


def results(folder: Path) -> Dict[str, Any]:
    """The results of a run, without the times and speeds that fairseq records with them."""
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
@pytest.mark.one_host  # test_preemption resumes bit for bit on both
def test_a_killed_damaged_and_stopped_run_ends_with_the_results_of_an_uninterrupted_one(
    command: List[str], capsys: pytest.CaptureFixture
):
    folder = Path(command[-1]) / "tiny" / "seed-1"
    last = folder / "checkpoints" / LAST

    with started(command) as launcher:
        reported = next(done for done in launcher.updates() if done >= 10)
        launcher.kill()
    assert num_updates(last) >= 8

    # Killed again, while fairseq copies its checkpoint to checkpoint_last.pt.
    os.truncate(last, last.stat().st_size // 2)
    with started(command) as launcher:
        resumed = next(launcher.updates())
        launcher.send(signal.SIGINT)
        assert launcher.end() == 130
        errors = launcher.errors.read_text(encoding="utf-8")
    assert errors.splitlines()[-1] == "stopped by SIGINT: the same command resumes"
    assert 8 < resumed <= num_updates(last) < UPDATES

    for stage in ("average", "generate news", "score news"):
        with started(command) as launcher:
            lines = list(itertools.takewhile(f"-- {stage}\n".__ne__, launcher.output))
            launcher.kill()
        trained = "complete" if stage != "average" else "resuming"
        assert any(line.startswith(f"-- train: {trained}") for line in lines)

    assert main(command) == 0, capsys.readouterr().err
    assert "-- average: complete" in capsys.readouterr().out
    assert num_updates(last) == UPDATES
    assert num_updates(folder / "averaged.pt") == UPDATES
    logged = [json.loads(line) for line in (folder / "train.log").read_text().splitlines()]
    inner = [int(stats["num_updates"]) for stats in logged if "num_updates" in stats]
    # A killed launcher has not written the last lines of its training.
    missing = sorted(set(range(2, UPDATES + 1, 2)) - set(inner))
    assert missing in ([], [reported + 2], [reported + 2, reported + 4])
    hypotheses = (folder / "generate-news.txt").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("H-") for line in hypotheses) == 6
    assert set(json.loads((folder / "scores.json").read_text())) == {"news"}
    summary = json.loads((folder.parent / "summary.json").read_text())
    assert summary["seeds"] == [1]
    assert set(summary["scores"]["news"]) == set(METRICS)

    elsewhere = folder.parents[1].with_name("never-interrupted")
    assert main([*command[:-1], str(elsewhere)]) == 0
    uninterrupted = elsewhere / "tiny" / "seed-1"
    assert results(folder) == results(uninterrupted)
    capsys.readouterr()

    before = snapshot(folder)
    assert main(command) == 0
    output = capsys.readouterr().out
    assert output.count(": complete") == 4, output
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
def test_data_that_differ_from_the_configuration_are_refused(
    command: List[str], capsys: pytest.CaptureFixture, tmp_path: Path
):
    elsewhere = ["--output", str(tmp_path)]
    assert main([*command, *elsewhere, "--set", "data.test-sets.old=test1"]) == 2
    assert "data.test-sets.old: there is no" in capsys.readouterr().err
    assert main([*command, *elsewhere, "--set", "data.test-sets.news=test1"]) == 2
    assert "data.test-sets.news: test1: " in capsys.readouterr().err
    assert main([*command, *elsewhere, "--pair", "en-fr"]) == 2
    assert "news.fr" in capsys.readouterr().err
