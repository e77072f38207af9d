"""Bad files and missing machines: one line with the value and the fix, and nothing is written.

The command lines that are refused stand in tests/frozen/data/refusals.txt.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest
import torch

from capsnmt.launch.__main__ import main
from tests.small_row import SMALL

START = "--config row.yaml --cpu --dry-run"

# what is refused -> row.yaml, which may extend the row of the tests and which child.yaml extends,
# and the words of the line
FILES: Dict[str, Tuple[str, List[str]]] = {
    "an unknown key": ("learning-rate: 1", ["row.yaml", "learning-rate", "choose from", "arch"]),
    "a list as a flag": ("train: {lr: [1, 2]}", ["row.yaml: train.lr is [1, 2]"]),
    "a key that is a number": ("3: a", ["row.yaml", "the key 3 is not text"]),
    "a key twice": ("arch: a\narch: b", ["row.yaml: line 2", "'arch' is repeated"]),
    "no YAML": ("train: {lr: 1", ["row.yaml", "not valid YAML"]),
    "an alias of itself": ("train: &a {b: *a}", ["row.yaml", "not valid YAML", "Circular"]),
    "no mapping": ("- a", ["row.yaml: the file", "expected `object`"]),
    "no UTF-8": ("arch: \udcff", ["row.yaml", "UTF-8"]),
    "extends nothing": ("extends: nothing", ["row.yaml: extends: nothing is no", "such as base"]),
    "extends itself": ("extends: row", ["row.yaml: extends: row is no other", "such as base"]),
    "an incomplete row": ("arch: transformer", ["row: dataset is not set", "--set dataset=VALUE"]),
    "a flag of a file": ("extends: base\ntrain: {warm-up: 1}", ["row: train", "--warm-up 1"]),
    "starts from nothing": ("extends: base\ninit-from: 3", ["row.yaml: init-from is 3"]),
    "starts from itself": (
        "extends: base\ninit-from: row",
        ["row: init-from leads back to the row"],
    ),
    "starts twice": (
        "extends: base\ninit-from: base\ntrain: {init-from: a.pt}",
        ["train.init-from", "drop"],
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "base.yaml").write_text(SMALL, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_one_line(name: str, refused: Callable[..., str], folder: Path) -> None:
    text, parts = FILES[name]
    (folder / "row.yaml").write_text(f"{text}\n", "utf-8", "surrogateescape")
    message = refused(main, *shlex.split(START))
    assert all(part in message for part in parts), message
    if "extends" not in text:  # the file is named if a file that extends it is launched
        (folder / "child.yaml").write_text("extends: row\n", "utf-8")
        message = refused(main, *shlex.split(START.replace("row.yaml", "child.yaml")))
        assert "row.yaml" in message or "child: " in message, message


def test_more_gpus_than_there_are_is_one_line(
    refused: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, parts in ((0, "none of"), (1, "1 of this machine; give --gpus 1..1")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        message = refused(main, *shlex.split("--config multi30k/baseline --gpus 2"))
        assert f"--gpus is 2, but torch can use {parts}" in message
    # those of several nodes are not of this machine
    message = refused(main, *shlex.split("--config base.yaml --gpus 2 --nodes 2 --prepared none"))
    assert "--prepared none has no prepared data" in message


def test_a_missing_tokeniser_of_the_target_language_is_one_line(
    refused: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    row = "--config multi30k/baseline --cpu --set data.target-lang=ja"
    assert "pip install 'sacrebleu[ja]'" in refused(main, *shlex.split(row))
