"""Bad command lines and bad files: one line with the value and the fix, and nothing is written."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Dict, List, Tuple

import pytest
import torch

from capsnmt.launch.__main__ import main
from tests.small_row import SMALL

ROW = "--config multi30k/baseline --cpu"
PROBE = "--dataset probing_li2019 --rows baseline --tasks WC --data senteval --cpu"
START = "--config row.yaml --cpu --dry-run"

# what is refused -> the command line in a folder with a file `text` and a folder `senteval`, the
# words of the line that it ends with
COMMANDS: Dict[str, Tuple[str, List[str]]] = {
    # what to run
    "nothing": ("", ["--config ROW", "--dataset DATASET", "--prepared DIR"]),
    "an architecture alone": ("--arch capsnmt_transformer", ["--dataset", "with --arch ARCH"]),
    "no configuration": ("--config multi30k/nothing", ["multi30k/nothing", "multi30k/em_routing"]),
    "a misspelt configuration": (
        "--dataset wmt14_en_de --config li2019_efective",
        ["li2019_efective", "such as wmt14_en_de/li2019_effective, "],
    ),
    "no data set": ("--dataset nope", ["--dataset nope", "choose from", "multi30k"]),
    "another data set": ("--dataset demo --config multi30k/baseline", ["multi30k", "not demo"]),
    "no architecture": (f"{ROW} --arch transfromer", ["--arch", "'transfromer'", "choose from"]),
    "no row": ("--dataset demo --rows mlmha", ["--config mlmha", "demo/em_routing"]),
    "a row twice": ("--dataset demo --rows baseline,baseline", ["give different names"]),
    "rows and a row": ("--dataset demo --rows all --config a", ["--rows and --config exclude"]),
    "rows of nothing": ("--rows all", ["--rows all", "give --dataset"]),
    "no language": (f"{ROW} --pair en", ["--pair", "'en'", "SOURCE-TARGET"]),
    "one language": (f"{ROW} --pair en-en", ["--pair", "'en-en'", "two languages"]),
    "no code of a language": (f"{ROW} --pair en-german", ["--pair", "german"]),
    "one language, set": (f"{ROW} --set data.target-lang=en", ["target-lang: en", "give two"]),
    "a name that is a path": (f"{ROW} --name ../../x", ["--name", "'../../x'", "without a slash"]),
    "a name of two lines": (f"{ROW} --name 'a\nb'", ["--name", r"'a\nb'", "printable"]),
    "a baseline that is a path": (f"{ROW} --baseline ../x", ["--baseline", "'../x'"]),
    "its own baseline": (f"{ROW} --baseline baseline", ["--baseline baseline", "row itself"]),
    "a baseline that has not run": (
        f"{ROW} --baseline em_routing",
        ["--baseline em_routing", "runs/multi30k/em_routing/seed-1", "launch both"],
    ),
    # flags
    "an unknown flag": (f"{ROW} --learning-rate 1", ["--learning-rate", "--help"]),
    "a shortened flag": ("--dataset multi30k --dry-ru", ["--dry-ru", "--help"]),
    "no number": (f"{ROW} --seed one", ["--seed", "'one'", "whole number"]),
    "too small": (f"{ROW} --max-update 0", ["--max-update", "'0'", "at least 1"]),
    "too large": (f"{ROW} --seeds 1,99999999999", ["'99999999999' is more than 2147483647"]),
    "a seed twice": (f"{ROW} --seeds 1,1", ["--seeds", "twice"]),
    "two that exclude each other": (f"{ROW} --gpus 1", ["--gpus", "not allowed with", "--cpu"]),
    "no folder": (f"{ROW} --data /no/such", ["--data /no/such", "no such folder"]),
    "a file as output": (f"{ROW} --output text", ["--output", "is a file; give a folder"]),
    "a file as data": (f"{ROW} --prepared text/data", ["--prepared", "is a file; give a folder"]),
    "no prepared data": (
        f"{ROW} --set data.recipe=null",
        ["--prepared", "manifest.json", "capsnmt-prepare"],
    ),
    "resume and another flag": ("--resume x --cpu", ["--resume x", "takes no other flag"]),
    "resume of no run": ("--resume senteval", ["--resume senteval", "config.json", "ROW/seed-S"]),
    "write over a file": (f"{ROW} --write-config text", ["text", "choose another name"]),
    "write several rows": (
        "--dataset demo --rows all --write-config x.yaml",
        ["--write-config x.yaml", "--config"],
    ),
    # SLURM
    "nodes without SLURM": (f"{ROW} --nodes 2", ["--nodes 2", "not a SLURM job", "salloc"]),
    # settings
    "no value": (f"{ROW} --set train.lr", ["train.lr", "KEY=VALUE"]),
    "no key": (f"{ROW} --set trane.lr=1", ["trane", "choose from", "train"]),
    "no choice": (f"{ROW} --set precision=fp8", ["precision: 'fp8'", "fp16, bf16, auto"]),
    "no count": (f"{ROW} --set batch.max-tokens=0", ["batch.max-tokens: 0", ">= 1"]),
    "no flag": (f"{ROW} --set train.dropuot=1", ["baseline: train", "--dropuot 1", "--help"]),
    "no flag of the search": (f"{ROW} --set generate.beams=5", ["generate", "--beams 5", "--help"]),
    "no number for a flag": (f"{ROW} --set train.dropout=much", ["--dropout", "'much'"]),
    "no list for a flag": (f"{ROW} --set 'train.lr=0.1; x'", ["train", "'0.1; x'", "a number"]),
    "no value for a flag": (f"{ROW} --set train.clip-norm=true", ["--clip-norm", "expected one"]),
    "a value for a switch": (
        f"{ROW} --set train.share-all-embeddings=yess",
        ["baseline: train", "yess"],
    ),
    "a flag of the launcher": (f"{ROW} --set train.save-dir=x", ["train.save-dir", "drop it"]),
    "no significance": (f"{ROW} --set score.significance=t-test", ["score.significance", "t-test"]),
    "a score without effect": (
        "--config multi30k/em_routing --cpu --baseline baseline --set score.samples=0 --dry-run",
        ["score.samples", "0"],
    ),
    "two averages": (f"{ROW} --set average.best=3", ["average", "choose one"]),
    "fewer updates than are averaged": (
        f"{ROW} --max-update 50",
        ["average.last-updates: 10", "save-interval-updates to 5"],
    ),
    "what the model refuses": (
        "--arch transformer_em_routing_tiny --dataset multi30k --cpu --set train.head-capsules=7",
        ["--head-capsules", "7"],
    ),
    "fp16 that overflows": (
        "--config multi30k/wang2019_dlcl --gpus 1 --set precision=fp16 --dry-run",
        ["precision: fp16", "dlcl", "bf16"],
    ),
    # sweeps
    "a sweep of nothing": (f"{ROW} --sweep layer-capsules", ["'layer-capsules'", "=1,8,64,512"]),
    "a value twice": (f"{ROW} --sweep lr=1,1", ["'lr=1,1'", "different values"]),
    "a list as a value": (f"{ROW} --sweep lr=[1],[2]", ["--sweep", "give numbers"]),
    "a value that is a path": (f"{ROW} --sweep lr=a/b,c", ["a/b", "without a slash"]),
    "a sweep of no flag": (f"{ROW} --sweep capsules=1,8", ["--sweep capsules", "--capsules 1"]),
    "a sweep without effect": (
        f"{ROW} --sweep layer-capsules=1,8",
        ["--layer-capsules", "--layer-aggregation"],
    ),
    "a sweep of a classifier": (f"{PROBE} --sweep lr=1,2", ["sentence classifier", "BLEU"]),
    # sentence classifiers
    "no task": (f"{PROBE} --tasks Length", ["'Length'", "choose from SentLen"]),
    "a task of a translation": (f"{ROW} --tasks WC", ["--tasks WC", "not a probing", "drop it"]),
    "a baseline of a classifier": (f"{PROBE} --baseline em", ["--baseline em", "no effect"]),
    "an average of a classifier": (f"{PROBE} --set average.best=2", ["average", "no effect"]),
    "a decoder of a classifier": (f"{PROBE} --set train.mlmha=M-10", ["mlmha"]),
    "more devices than sentences": (f"{PROBE} --cpu 999", ["cannot be split over 999 devices"]),
    "no task file": (f"{PROBE} --data .", ["word_content.txt", "is missing", "--data DIR"]),
    "no text to build from": (
        "--dataset probing_multi30k --tasks WC --cpu --dry-run",
        ["probing_multi30k", "give --data FILE"],
    ),
}

# the same for row.yaml, which may extend the row of the tests, as child.yaml extends row.yaml
FILES: Dict[str, Tuple[str, List[str]]] = {
    "an unknown key": ("learning-rate: 1", ["row.yaml", "learning-rate", "choose from", "arch"]),
    "an unknown inner key": ("data: {langs: en}", ["row.yaml: data", "langs", "source-lang"]),
    "a number as text": ("arch: 3", ["row.yaml: arch: 3", "expected str"]),
    "a text as number": ("batch: {max-tokens: many}", ["batch.max-tokens: 'many'"]),
    "a list as a flag": ("train: {lr: [1, 2]}", ["row.yaml: train.lr: [1, 2]"]),
    "a key that is a number": ("3: a", ["row.yaml", "the key 3 is not text"]),
    "a key twice": ("arch: a\narch: b", ["row.yaml: line 2", "'arch' is repeated"]),
    "no YAML": ("train: {lr: 1", ["row.yaml", "not valid YAML"]),
    "no mapping": ("- a", ["row.yaml: the file", "expected a mapping"]),
    "no UTF-8": ("arch: \udcff", ["row.yaml", "UTF-8"]),
    "extends nothing": ("extends: nothing", ["row.yaml: extends", "DATASET/ROW or one of base"]),
    "extends itself": ("extends: row", ["row.yaml: extends: row", "extends itself"]),
    "an incomplete row": ("arch: transformer", ["row: dataset is not set", "--set dataset=VALUE"]),
    "a flag of a file": ("extends: base\ntrain: {warm-up: 1}", ["row: train", "--warm-up 1"]),
    "a test set that is a path": (
        "extends: base\ndata: {test-sets: {a/b: test}}",
        ["'a/b'", "without a slash"],
    ),
    "starts from nothing": ("extends: base\ninit-from: 3", ["row.yaml: init-from: 3"]),
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
    (tmp_path / "text").write_text("text\n", "utf-8")
    (tmp_path / "senteval").mkdir()
    (tmp_path / "base.yaml").write_text(SMALL, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "senteval"))
    return tmp_path


def refused(capsys: pytest.CaptureFixture, folder: Path, arguments: List[str]) -> str:
    """The line that a command line ends with; nothing is printed else or written."""
    before = sorted(folder.rglob("*"))
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert len(printed.err) < 800
    assert sorted(folder.rglob("*")) == before
    return printed.err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_bad_command_line_is_one_line(
    name: str, capsys: pytest.CaptureFixture, folder: Path
) -> None:
    line, parts = COMMANDS[name]
    message = refused(capsys, folder, shlex.split(line))
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_one_line(name: str, capsys: pytest.CaptureFixture, folder: Path) -> None:
    text, parts = FILES[name]
    (folder / "row.yaml").write_text(f"{text}\n", "utf-8", "surrogateescape")
    message = refused(capsys, folder, shlex.split(START))
    assert all(part in message for part in parts), message
    if "extends" not in text:  # the file is named if a file that extends it is launched
        (folder / "child.yaml").write_text("extends: row\n", "utf-8")
        message = refused(capsys, folder, shlex.split(START.replace("row.yaml", "child.yaml")))
        assert "row.yaml" in message or "child: " in message, message


def test_more_gpus_than_there_are_is_one_line(
    capsys: pytest.CaptureFixture, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, parts in ((0, "has none"), (1, "has 1 that torch can use: give --gpus 1..1")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        message = refused(capsys, folder, shlex.split("--config multi30k/baseline --gpus 2"))
        assert f"--gpus 2: this machine {parts}" in message


def test_more_nodes_than_the_job_has_is_one_line(
    capsys: pytest.CaptureFixture, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    message = refused(capsys, folder, shlex.split("--dataset logical_inference --cpu --nodes 3"))
    assert "--nodes 3: job 7 has 2" in message
