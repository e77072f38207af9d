"""The prepared data that the launcher's tests train on, and stand-ins for SLURM's commands."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Callable, List

import pytest
from fairseq import options
from fairseq_cli import preprocess

from capsnmt.launch.__main__ import main
from tests.commands import interpreter

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
SENTENCES = {"train": 400, "valid": 8, "news": 6}
Launch = Callable[..., str]


def trainings(text: str) -> List[str]:
    """The training commands of a plan."""
    return [line for line in text.splitlines() if "--save-dir" in line and line[0] != "#"]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What data_prep leaves: the data-bin, the raw references, and the manifest."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "raw").mkdir()
    chance = random.Random(1)
    for split, lines in SENTENCES.items():
        pairs = [[chance.choice(WORDS) for _ in range(chance.randint(3, 8))] for _ in range(lines)]
        for language, step in (("en", 1), ("de", -1)):
            text = "".join(" ".join(pair[::step]) + "\n" for pair in pairs)
            (folder / "raw" / f"{split}.{language}").write_text(text, encoding="utf-8")
    prefixes = {"train": "train", "valid": "valid", "test": "news"}
    arguments = ["--source-lang", "en", "--target-lang", "de", "--joined-dictionary"]
    for split, name in prefixes.items():
        arguments += [f"--{split}pref", str(folder / "raw" / name)]
    parser = options.get_preprocessing_parser()
    preprocess.main(parser.parse_args([*arguments, "--destdir", str(folder / "bin")]))
    manifest = '{"pair": "en-de", "pairs": 400, "subsets": {"valid": "valid", "news": "test"}}'
    (folder / "manifest.json").write_text(manifest, encoding="utf-8")
    return folder


@pytest.fixture
def plan(capsys: pytest.CaptureFixture) -> Launch:
    """``plan(FLAG, ...)`` returns what a dry run prints."""

    def print_plan(*arguments: object) -> str:
        status = main([*map(str, arguments), "--dry-run"])
        printed = capsys.readouterr()
        assert (status, printed.err) == (0, "")
        return printed.out

    return print_plan


@pytest.fixture
def launch(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """``launch(FLAG, ..., status=0)`` runs the launcher's commands and returns all it prints."""
    monkeypatch.setattr(sys, "executable", str(interpreter()))

    def run(*arguments: object, status: int = 0) -> str:
        ended = main([*map(str, arguments)])
        printed = capsys.readouterr()
        assert ended == status, printed.out + printed.err
        assert not status or printed.err.count("\n") == 1, printed.err
        return printed.out + printed.err

    return run
