"""What a user has trained, prepared or named is never lost, replaced or run as a command."""

import re
import shutil
from pathlib import Path
from typing import Callable

import pytest

from capsnmt.launch.__main__ import main as launch
from tests.commands import ON_CPU, logged, succeed
from tests.small_row import SMALL
from tests.support import PLUGIN

INJECTED = "x\nJOB\ntouch injected\n#"


@pytest.mark.parametrize("place", ["arch", "name", "output", "prepared", "the working folder"])
def test_a_line_end_is_no_command_of_the_plan(
    place: str, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan shows paths and commands in comments, and ends a job's script by ``JOB``."""
    (tmp_path / "tiny.yaml").write_text(SMALL, "utf-8")
    (tmp_path / INJECTED).mkdir()
    row = ["--config", tmp_path / "tiny.yaml", "--cpu", "--dry-run"]
    row += [] if place == "output" else ["--slurm", "gpu"]
    if place == "the working folder":
        monkeypatch.chdir(tmp_path / INJECTED)
        row += ["--prepared", tmp_path, "--output", tmp_path]
    else:
        row += [f"--{place}", INJECTED]
    message = refused(launch, *row)
    assert "x\\nJOB" in message
    assert place in message


def test_data_that_are_drawn_for_each_epoch_reach_the_last_epoch(tmp_path: Path) -> None:
    """Every epoch was the first: the same sentences were drawn, and the training had no end."""
    lines = [f"w{number % 7} w{number % 5} w{number % 3}" for number in range(40)]
    text, folder = tmp_path / "text", tmp_path / "de"
    text.write_text("\n".join(lines) + "\n", "utf-8")
    prefixes = ("--trainpref", text, "--validpref", text, "--destdir", folder)
    succeed("fairseq_cli.preprocess", "--only-source", *prefixes)
    shutil.copytree(folder, tmp_path / "en")
    shutil.copy(folder / "dict.txt", tmp_path)
    said = logged(
        *("fairseq_cli.train", tmp_path, "--user-dir", PLUGIN, "--task", "multilingual_masked_lm"),
        *("--arch", "roberta_base", "--criterion", "masked_lm", *ON_CPU, "--tokens-per-sample", 16),
        *("--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 16),
        *("--encoder-layers", 1, "--encoder-attention-heads", 2),
        *("--optimizer", "adam", "--lr", 0.001, "--batch-size", 8, "--max-update", 60),
        *("--max-epoch", 3, "--disable-validation", "--no-save"),
    )
    epochs = re.findall(r"end of epoch (\d+) ", said)
    assert list(dict.fromkeys(epochs)) == ["1", "2", "3"]
