"""Never another experiment: data that the user binarised; seeds and machines of a row."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Callable, List

import pytest

from capsnmt.files import sha256
from capsnmt.report.__main__ import main as report
from capsnmt.runs.records import RunFolder
from tests.launch import changes
from tests.launch.conftest import Launch
from tests.small_row import arguments

pytestmark = pytest.mark.system


@pytest.fixture
def data(prepared: Path, tmp_path: Path) -> Path:
    """Data that a test may change."""
    return shutil.copytree(prepared, tmp_path / "data")


def test_files_that_flags_name_are_compared_by_their_content(
    data: Path, launched: Path, tmp_path: Path, launch: Launch
) -> None:
    codes, start = tmp_path / "codes", tmp_path / "start.pt"
    codes.write_text("#version: 0.2\na b\n", "utf-8")
    line = [*arguments(data, tmp_path), "--set", "train.train-subset=test"]
    shutil.copy(RunFolder(launched / "runs" / "row" / "seed-1").last_checkpoint, start)
    named = ["generate.bpe=subword_nmt", f"generate.bpe-codes={codes}"]
    named += [f"train.continue-once={start}", "train.max-update=8"]
    line += [word for each in named for word in ("--set", each)]
    launch(*line)
    kept = start.rename(tmp_path / "kept.pt")
    start.write_text("another checkpoint", "utf-8")
    assert "was trained with data: --continue-once" in launch(*line, status=2)
    kept.rename(start)
    codes.write_text("#version: 0.2\na c\n", "utf-8")
    assert "-- generate news\n" in launch(*line)
    changes.exchanged("test")(SimpleNamespace(prepared=data))
    assert "was trained with data: test.en-de.en.bin" in launch(*line, status=2)


@pytest.mark.usefixtures("run")
def test_text_that_was_edited_after_its_preparation_is_named(
    data: Path, words: List[str], launch: Launch
) -> None:
    """Its binarised source is that of the old text."""
    shutil.copytree(data / "raw", data / "tokenised")
    names = ("raw/news.en", "raw/news.de", "tokenised/news.de", "bin/test.en-de.en.bin")
    manifest = json.loads((data / "manifest.json").read_text("utf-8"))
    manifest["files"] = {name: {"sha256": sha256(data / name)} for name in names}
    (data / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    line = [*words, "--prepared", str(data)]
    assert "warning" not in launch(*line)
    for name in names[:3]:
        lines = (data / name).read_text("utf-8").splitlines(keepends=True)
        (data / name).write_text("".join(reversed(lines)), "utf-8")
    said = f"warning: {data / names[0]} and 2 more is not what manifest.json says"
    assert launch(*line).count(said) == 1


def test_a_row_takes_no_model_of_other_words_and_no_translations_of_other_text(
    data: Path, run: Path, words: List[str], tmp_path: Path, launch: Launch
) -> None:
    line = [*words, "--prepared", str(data)]
    (tmp_path / "other.yaml").write_text("extends: row\n", "utf-8")
    line[1] = str(tmp_path / "other.yaml")
    shutil.copy(data / "raw" / "news.de", data / "raw" / "old.de")
    (run / "generate-old.txt").touch()  # of a training that went on without that test set
    old = ["--baseline", "row", "--set", "data.test-sets.old=test"]
    manifest = data / "manifest.json"  # of another test set than an earlier preparation's
    said = launch(*line, *old, status=2)
    assert f"data.test-sets.old is test, which {manifest} says is news; set" in said
    manifest.write_text("{}", "utf-8")
    assert "row has no finished run in" in launch(*line, *old, status=2)
    before = {path: path.read_bytes() for path in data.rglob("*.*") if path.is_file()}
    for file, flags, said in (
        (data / "raw" / "news.de", ["--baseline", "row"], "was scored with"),
        (data / "bin" / "dict.en.txt", ["--set", "init-from=row"], "data: dict.en.txt"),
    ):
        lines = file.read_text("utf-8").splitlines()  # as many, in another order
        file.write_text("".join(f"{line}\n" for line in reversed(lines)), "utf-8")
        error = launch(*line, *flags, status=2).splitlines()[-1]
        assert said in error
        assert error.startswith(f"error: {run}")
        assert not (tmp_path / "runs" / "other" / "seed-1" / "config.json").exists()
        file.write_bytes(before[file])
    turned = ["data.source-lang=de", "data.target-lang=en", "init-from=row"]
    error = launch(*line, *(word for each in turned for word in ("--set", each)), status=2)
    assert f"{run}, the initial model, was trained with languages en-de, not de-en; la" in error


def test_all_references_of_a_test_set_are_scored_recorded_and_compared(
    data: Path, run: Path, words: List[str], launch: Launch, refused: Callable[..., str]
) -> None:
    shutil.copytree(data / "raw", data / "tokenised")
    manifest = json.loads((data / "manifest.json").read_text("utf-8"))
    files = {}
    for folder in ("raw", "tokenised"):
        lines = (data / folder / "news.de").read_text("utf-8").splitlines()
        other = "".join(f"{line}\n" for line in reversed(lines))
        (data / folder / "news.de.1").write_text(other, "utf-8")
        for name in ("news.de", "news.de.1"):
            checksum = sha256(data / folder / name)
            files[f"{folder}/{name}"] = {"sha256": checksum, "lines": len(lines), "tokens": 1}
    line = [*words, "--prepared", str(data), "--set", "score.tokenized=true"]
    records = []
    for seed, named in (("1", files), ("2", {})):
        (data / "manifest.json").write_text(json.dumps({**manifest, "files": named}), "utf-8")
        launch(*line, "--seeds", seed)
        folder = run.with_name(f"seed-{seed}")
        records.append(json.loads((folder / "scores.json").read_text("utf-8"))["news"])
        scores = records[-1]["systems"][0]["outputs"][0]["scores"]
        count = f"nrefs:{1 + bool(named)}|"
        assert {each["signature"][: len(count)] for each in scores.values()} == {count}
        assert {"bleu", "multi-bleu"} < {*scores}
    names = [str(data / "raw" / name) for name in ("news.de", "news.de.1")]
    assert [each.get("references") for each in records] == [names, None]
    assert records[0]["checksums"]["reference"] != records[1]["checksums"]["reference"]
    page = [str(run.parent), "--output", str(data / "page")]
    assert "the reference of news" in refused(report, *page)
    # the same translations are scored by what there is now
    (data / "manifest.json").write_text(json.dumps({**manifest, "files": files}), "utf-8")
    printed = launch(*line, "--seeds", "1,2")
    assert printed.count("score news: complete") == 1
    assert printed.count("generate news: complete") == 2
    summary = json.loads((run.parent / "summary.json").read_text("utf-8"))
    assert summary["seeds"] == [1, 2]
    assert summary["scores"]["news"]["bleu"]["signature"].startswith("nrefs:2|")
    assert report(page) == 0
    written = (data / "page" / "report.md").read_text("utf-8")
    assert "sentences, 2 references" in written
    assert "| reference (de) |" in written
    # the same by other tokens
    (data / "tokenised" / "news.de").write_text("x\n" * len(lines), "utf-8")
    assert "-- score news\n" in launch(*line, "--seeds", "1")
    shutil.copy(data / "raw" / "news.de", data / "tokenised")  # as it was
    # one that was lost is named
    for folder in ("raw", "tokenised"):
        (data / folder / "news.de.1").unlink()
        said, missing = launch(*line, "--seeds", "3", status=2), data / folder / "news.de.1"
        assert f"data.test-sets.news is not in the data (no {missing})" in said
        assert "restore it, or delete" in said


def test_each_part_of_a_training_says_what_it_ran_on(
    run: Path, words: List[str], launch: Launch
) -> None:
    """Parts on one machine are one: tests/frozen/golden/launch_records.txt."""
    first = RunFolder(run).read_training().updates
    for _ in range(2):
        launch(*words, "--threads", "2", "--set", "train.max-epoch=2")
    trained = RunFolder(run).read_training()
    assert (trained.threads, trained.updates) == (2, 2 * first)
    assert [(part.threads, part.updates) for part in trained.earlier] == [(1, first)]
    launch(*words, "--name", "stock", "--set", "train.memory-efficient-fp16=true")
    stock = RunFolder(run.parents[1] / "stock" / "seed-1").read_training()
    assert stock.precision == "memory-efficient-fp16"


def test_a_run_with_other_settings_than_what_it_is_compared_with_is_named(
    run: Path, words: List[str], launch: Launch
) -> None:
    """Such as a flag of the first launch that the second has not."""
    seed = launch(*words, "--seeds", "2", "--set", "train.lr=0.001")
    other = ["--name", "other", "--baseline", "row"]
    row = launch(*words, *other, "--set", "train.lr=0.001", "--set", "batch.tokens-per-update=64")
    for said, new, key, now, was in (
        (seed, run.parent / "seed-2", "train.lr", 0.001, 0.005),
        (row, run.parents[1] / "other" / run.name, "batch.tokens-per-update", 64, 128),
    ):
        assert f"warning: {new} has {key} {now}, and {run} {was}: " in said
        assert f"give --set {key}={was}\n" in said
    assert f"{run.parents[1] / 'other' / run.name} has train.lr" not in row  # it may have its own
    assert "warning: " not in launch(*words)
