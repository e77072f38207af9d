"""Sentence classifiers: where their data comes from, and a real launch."""

import json
import random
import re
import shlex
from pathlib import Path
from typing import List

import pytest

from tests.commands import draw_sentence
from tests.launch.conftest import Launch

ROW = """
dataset: tiny
arch: probing_transformer_tiny
data: {recipe: senteval}
batch: {sentences-per-update: 8, max-sentences: 4}
precision: fp32
train:
  task: probing
  criterion: sentence_classification
  optimizer: adam
  lr: 0.001
  max-update: 2
  head-aggregation: em
  encoder-embed-dim: 16
  encoder-ffn-embed-dim: 16
  best-checkpoint-metric: accuracy
  maximize-best-checkpoint-metric: true
  no-epoch-checkpoints: true
  num-workers: 0
"""
FILE = "word_content.txt"  # of the task WC


def preparation(plan: Launch, *flags: object) -> List[str]:
    """The words after ``python -m`` of the preparation in a plan."""
    found = re.findall(r"# prepare\n(.*)\n", plan(*flags, "--cpu"))
    return shlex.split(found[0])[2:] if found else []


def test_each_data_set_is_downloaded_built_generated_or_given(plan: Launch, tmp_path: Path) -> None:
    senteval = ["--dataset", "probing_li2019", "--tasks", "WC"]
    mirror = ["--mirror", "http://l/"]
    download = ["capsnmt.sentences.senteval", "--output", "runs/probing_li2019/data"]
    assert preparation(plan, *senteval, *mirror) == [*download, *mirror]
    assert not preparation(plan, *senteval, "--data", tmp_path)
    text = tmp_path / "train.en"
    text.touch()
    assert preparation(plan, "--dataset", "probing_multi30k", "--data", text) == [
        *("capsnmt.sentences.build", str(text), "--output", "runs/probing_multi30k/data"),
        *("--tokenize", "moses", "--length-bounds", "5,9,13,17,21,26"),
        *("--first-rank", "200", "--words", "200"),
    ]
    for dataset in ("logical_inference", "logical_inference_cpu"):
        found = preparation(plan, "--dataset", dataset)
        assert found == [
            *("capsnmt.sentences.logical_inference", "--output", f"runs/{dataset}/data")
        ]
        assert not preparation(plan, "--dataset", dataset, "--data", tmp_path)


def test_files_that_are_there_are_not_made_again(
    plan: Launch, launch: Launch, tmp_path: Path
) -> None:
    for dataset in ("probing_li2019", "probing_multi30k"):
        given = ["--dataset", dataset, "--tasks", "WC", "--prepared", tmp_path / dataset]
        (tmp_path / dataset).mkdir()
        (tmp_path / dataset / f"{FILE}.gz").touch()
        assert preparation(plan, *given) == []
    # built here: their text is needed no more, unless they are to be others
    built = preparation(plan, *given, "--data", __file__)[1:]
    (tmp_path / dataset / "manifest.json").write_text(json.dumps({"arguments": built}), "utf-8")
    assert preparation(plan, *given) == []
    refused = launch(*given, "--cpu", "--dry-run", "--set", "data.options.words=500", status=2)
    assert "words is 500, but" in refused
    assert "was built with 200; give --data" in refused
    assert preparation(plan, *given, "--data", __file__)
    given = ["--dataset", "logical_inference", "--prepared", tmp_path]
    for number in range(13):
        assert preparation(plan, *given)
        for part in ("train", "test"):
            (tmp_path / f"{part}{number}").touch()
    assert preparation(plan, *given) == []
    (tmp_path / "manifest.json").touch()  # what this package has made is compared as ever
    assert preparation(plan, *given)


@pytest.mark.system
def test_a_probing_row_is_trained_evaluated_and_not_repeated(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "em.yaml").write_text(ROW, "utf-8")
    (tmp_path / "senteval").mkdir()
    lines = [f"{part}\t{label}\ta b {label} c" for part in ("tr", "va", "te") for label in "OIIO"]
    (tmp_path / "senteval" / FILE).write_text("\n".join(lines) + "\n", "utf-8")
    given = ["--config", "em.yaml", "--tasks", "WC", "--data", "senteval", "--output", "runs"]
    given += ["--cpu", "--threads", "1", "--set", "train.dictionary=dict.txt"]
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("a 9\nb 9\nc 9\n", "utf-8")
    assert "== em, WC: runs/em/WC/summary.json" in launch(*given)
    run = tmp_path / "runs" / "em" / "WC" / "seed-1"
    results = json.loads((run / "results.json").read_text("utf-8"))
    assert (results["task"], results["probing_task"], results["updates"]) == ("probing", "WC", 2)
    assert set(results["splits"]) == {"valid", "test"}
    summary = json.loads((run.parent / "summary.json").read_text("utf-8"))
    assert (summary["task"], summary["seeds"]) == ("WC", [1])
    training = json.loads((run / "training.json").read_text("utf-8"))
    assert list(training["vocabulary"]) == [FILE]

    # also with other spellings of the folders, and only what was lost is made again
    absolute = [str(tmp_path / word) if word in ("senteval", "runs") else word for word in given]
    absolute[-1] = f"train.dictionary={dictionary}"
    assert launch(*absolute).count(": complete") == 2
    (run / "results.json").unlink()
    again = launch(*given)
    assert "-- train: complete at 2 updates\n-- evaluate\n" in again
    dictionary.write_text("c 9\na 9\nb 9\n", "utf-8")  # the same name and size, other words
    assert "was trained with data: --dictionary" in launch(*given, status=2)
    (tmp_path / "senteval" / FILE).write_text("tr\tI\ta\nva\tI\ta\nte\tO\ta\n", "utf-8")
    assert "was trained with data" in launch(*given, status=2)


@pytest.mark.system
def test_tasks_of_other_text_do_not_take_the_place_of_those_that_were_built(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = "{recipe: probing_from_text, tasks: BShift, options: {tasks: BShift}}"
    row = ROW.replace("{recipe: senteval}", data)
    Path("row.yaml").write_text(row, "utf-8")
    chance = random.Random(1)
    for name in ("a.en", "b.en"):
        lines = (draw_sentence(chance, "abcdefgh", 3, 8) for _ in range(120))
        Path(name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    given = ["--config", "row.yaml", "--output", "runs", "--cpu", "--threads", "1", "--data"]
    launch(*given, "a.en")
    Path("c.en").write_bytes(Path("a.en").read_bytes())
    assert launch(*given, "c.en").count(": complete") == 3
    Path("c.en").unlink()  # it is needed no more
    assert launch(*given, "c.en").count(": complete") == 2
    before = Path("runs/data/bigram_shift.txt").read_bytes()
    assert "prepare failed with exit status 2" in launch(*given, "b.en", status=1)
    Path("c.en").write_bytes(Path("b.en").read_bytes())  # as while a job is in the queue
    assert launch("--resume", "runs/row/BShift/seed-1").count(": complete") == 3
    assert Path("runs/data/bigram_shift.txt").read_bytes() == before
