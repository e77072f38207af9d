"""What a user has trained, prepared or named is never lost, replaced or run as a command."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, List

import pytest
import torch
import yaml

from capsnmt.checkpoints.resume import recover
from capsnmt.launch.__main__ import main as launch
from tests.commands import ON_CPU, command, is_refusal, succeed
from tests.corpora.conftest import recipe_of
from tests.interpreter import environment, start
from tests.small_row import SMALL
from tests.support import PLUGIN

# the command lines of both hosts are the same code; at night both run them
pytestmark = pytest.mark.one_host

HANGS = 60.0  # seconds


def children(parent: int) -> List[int]:
    """Return the running children of a process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, its_parent = entry.read_text("utf-8").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(its_parent) == parent and state != "Z":
            found.append(int(entry.parent.name))
    return found


@pytest.fixture
def long_corpus(tmp_path: Path) -> Path:
    """A recipe whose training text takes two processes a few seconds."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, copies in (("train", 40_000), ("val", 4), ("test", 4)):
        for language in ("en", "de"):
            lines = (
                f"the {language}{number % 97} sleeps , {number} .\n" for number in range(copies)
            )
            (folder / f"{split}.{language}").write_text("".join(lines), "utf-8")
    path = tmp_path / "long.yaml"
    path.write_text(yaml.safe_dump(recipe_of(folder)), "utf-8")
    return path


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core needs no worker")
def test_a_killed_worker_ends_the_preparation_in_one_line(
    long_corpus: Path, tmp_path: Path
) -> None:
    """It waited for ever for the lines that the worker had taken, and started any number."""
    messages = tmp_path / "messages"
    words = ["--local", tmp_path / "corpus", "--output", tmp_path / "out", "--workers", 100_000]
    given = [sys.executable, "-W", "ignore", "-m", "capsnmt.corpora", long_corpus, *words]
    with (
        messages.open("wb") as stream,
        subprocess.Popen(list(map(str, given)), env=environment(), stderr=stream) as process,
    ):
        try:
            while "] tokenise train" not in messages.read_text("utf-8"):
                assert process.poll() is None, messages.read_text("utf-8")
                time.sleep(0.01)
            while len(workers := children(process.pid)) < 2:
                assert process.poll() is None, messages.read_text("utf-8")
            assert len(workers) <= len(os.sched_getaffinity(0))
            time.sleep(0.2)  # they have taken lines
            os.kill(workers[0], signal.SIGKILL)
            assert process.wait(HANGS) == 1
        finally:
            process.kill()
    *_, error = messages.read_text("utf-8").splitlines()
    assert error.startswith("error: ")
    assert "worker" in error
    assert "killed" in error or "terminated" in error
    assert not list(tmp_path.glob("out/*/*.part"))


def test_a_checkpoint_in_torchs_older_format_is_kept(tmp_path: Path) -> None:
    """It was taken for damaged, and the training began again."""
    last = tmp_path / "checkpoint_last.pt"
    state = {"model": {}, "optimizer_history": [{"num_updates": 3}]}
    torch.save(state, last, _use_new_zipfile_serialization=False)
    before = last.read_bytes()
    assert recover(tmp_path) == (3, None)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == {last: before}


@pytest.mark.parametrize("name", ["average", "export", "evaluate", "classify"])
def test_an_output_that_is_no_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """It was replaced by a file, or the command waited for ever for a reader."""
    output, checkpoint, text = (tmp_path / name for name in ("pipe", "checkpoint.pt", "text"))
    os.mkfifo(output)
    text.write_text("a b\n", "utf-8")
    torch.save({"model": {"weight": torch.ones(1)}}, checkpoint)
    module, *words = {
        "average": ("capsnmt.checkpoints.average", checkpoint, "--output"),
        "export": ("capsnmt.export", checkpoint, "--output"),
        "evaluate": (
            *("capsnmt.evaluation", f"a={text}", "--reference", text, "--input", "plain"),
            "--json",
        ),
        "classify": ("capsnmt.sentences.evaluate", checkpoint, "--json"),
    }[name]
    streams = [Path(os.devnull), tmp_path / "output", tmp_path / "errors"]
    for stream in streams[1:]:
        stream.touch()
    given = [*map(str, words), str(output)]
    process = start(str(module), given, environment(), streams)
    process.join(HANGS)
    try:
        is_refusal(process.exitcode, streams[2].read_text("utf-8"), str(output))
    finally:
        process.kill()
        process.join()
    assert output.is_fifo()


def test_probing_tasks_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    """WC needs more words than this text has; SentLen was written before."""
    sentences = [" ".join(["word"] * (5 + number % 20) + [str(number)]) for number in range(400)]
    (tmp_path / "text").write_text("\n".join(sentences) + "\n", "utf-8")
    made = command(
        *("capsnmt.sentences.build", tmp_path / "text", "--output", tmp_path / "tasks"),
        *("--tasks", "SentLen,WC"),
    )
    assert made.returncode == 2
    assert len(made.stderr.splitlines()) == 1
    assert not (tmp_path / "tasks").exists()
    # alone, it can be made
    alone = ("--output", tmp_path / "tasks", "--tasks", "SentLen")
    succeed("capsnmt.sentences.build", tmp_path / "text", *alone)


INJECTED = "x\nJOB\ntouch injected\n#"
PLACES = {
    "arch": ["--arch", INJECTED],
    "name": ["--name", INJECTED],
    "output": ["--output", INJECTED],
    "prepared": ["--prepared", INJECTED],
}


@pytest.mark.parametrize("place", PLACES)
def test_a_line_end_in_a_flag_is_no_command_of_the_plan(
    place: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    """The plan shows paths and commands in comments, and ends a job's script by ``JOB``."""
    (tmp_path / "tiny.yaml").write_text(SMALL, "utf-8")
    slurm = [] if place == "output" else ["--slurm", "gpu"]
    row = ["--config", tmp_path / "tiny.yaml", "--cpu", "--dry-run"]
    assert "x\\nJOB" in refused(launch, *row, *PLACES[place], *slurm)


def test_data_that_are_drawn_for_each_epoch_reach_the_last_epoch(tmp_path: Path) -> None:
    """Every epoch was the first: the same sentences were drawn, and the training had no end."""
    lines = [f"w{number % 7} w{number % 5} w{number % 3}" for number in range(40)]
    text, folder = tmp_path / "text", tmp_path / "de"
    text.write_text("\n".join(lines) + "\n", "utf-8")
    prefixes = ("--trainpref", text, "--validpref", text, "--destdir", folder)
    succeed("fairseq_cli.preprocess", "--only-source", *prefixes)
    shutil.copytree(folder, tmp_path / "en")
    shutil.copy(folder / "dict.txt", tmp_path)
    done = command(
        *("fairseq_cli.train", tmp_path, "--user-dir", PLUGIN, "--task", "multilingual_masked_lm"),
        *("--arch", "roberta_base", "--criterion", "masked_lm", *ON_CPU, "--tokens-per-sample", 16),
        *("--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 16),
        *("--encoder-layers", 1, "--encoder-attention-heads", 2),
        *("--optimizer", "adam", "--lr", 0.001, "--batch-size", 8, "--max-update", 60),
        *("--max-epoch", 3, "--disable-validation", "--no-save"),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    epochs = re.findall(r"end of epoch (\d+) ", done.stdout + done.stderr)
    assert list(dict.fromkeys(epochs)) == ["1", "2", "3"]
