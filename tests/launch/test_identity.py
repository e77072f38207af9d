"""Never another experiment: data that the user binarised; seeds and machines of a row."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from capsnmt.launch.__main__ import main
from capsnmt.runs.records import RunFolder
from tests.commands import command, is_refusal, succeed
from tests.launch import changes
from tests.small_row import arguments

pytestmark = pytest.mark.system
RUN = "capsnmt.launch"


@pytest.fixture
def data(prepared: Path, tmp_path: Path) -> Path:
    """Data that a test may change."""
    return shutil.copytree(prepared, tmp_path / "data")


def test_seeds_of_other_references_have_no_mean(data: Path, tmp_path: Path) -> None:
    line = arguments(data, tmp_path)
    assert main([*line, "--seeds", "1"]) == 0
    reference = data / "raw" / "news.de"
    lines = reference.read_text("utf-8").splitlines()
    reference.write_text("".join(f"{line}\n" for line in reversed(lines)), "utf-8")
    assert main([*line, "--seeds", "2"]) == 0
    page = ["--output", tmp_path / "page"]
    done = command("capsnmt.report", tmp_path / "runs" / "row", *page)
    is_refusal(done.returncode, done.stderr, "the reference of news", "report them separately")
    # scored again, they have one
    assert main([*line, "--seeds", "1,2"]) == 0
    succeed("capsnmt.report", tmp_path / "runs" / "row", *page)


def test_files_that_flags_name_are_compared_by_their_content(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\na b\n", "utf-8")
    named = ("train.train-subset=test", "generate.bpe=subword_nmt", f"generate.bpe-codes={codes}")
    line = [*arguments(data, tmp_path), *(word for each in named for word in ("--set", each))]
    assert main(line) == 0
    codes.write_text("#version: 0.2\na c\n", "utf-8")
    capsys.readouterr()
    assert main(line) == 0
    assert "-- generate news\n" in capsys.readouterr().out
    changes.exchanged("test")(SimpleNamespace(prepared=data))
    assert main(line) == 2
    assert "was trained with data: test.en-de.en.bin" in capsys.readouterr().err


def test_a_row_takes_no_model_of_other_words_and_no_translations_of_other_text(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    line = arguments(data, tmp_path)
    assert main(line) == 0
    (tmp_path / "other.yaml").write_text("extends: row\n", "utf-8")
    line[1] = str(tmp_path / "other.yaml")
    before = {path: path.read_bytes() for path in data.rglob("*.*") if path.is_file()}
    for file, flags, said in (
        (data / "raw" / "news.de", ["--baseline", "row"], "was scored with"),
        (data / "bin" / "dict.en.txt", ["--set", "init-from=row"], "data: dict.en.txt"),
    ):
        lines = file.read_text("utf-8").splitlines()  # as many, in another order
        file.write_text("".join(f"{line}\n" for line in reversed(lines)), "utf-8")
        assert main([*line, *flags]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.startswith(f"error: {tmp_path / 'runs' / 'row' / 'seed-1'}")
        assert not (tmp_path / "runs" / "other" / "seed-1" / "config.json").exists()
        file.write_bytes(before[file])


def test_all_references_of_a_test_set_are_scored_recorded_and_compared(
    data: Path, tmp_path: Path
) -> None:
    shutil.copytree(data / "raw", data / "tokenised")
    manifest = json.loads((data / "manifest.json").read_text("utf-8"))
    files = {}
    for folder in ("raw", "tokenised"):
        lines = (data / folder / "news.de").read_text("utf-8").splitlines()
        other = "".join(f"{line}\n" for line in reversed(lines))
        (data / folder / "news.de.1").write_text(other, "utf-8")
        for name in ("news.de", "news.de.1"):
            files[f"{folder}/{name}"] = {"sha256": "0", "lines": len(lines), "tokens": 1}
    line = [*arguments(data, tmp_path), "--set", "score.tokenized=true"]
    records = []
    for seed, named in (("1", files), ("2", {})):
        (data / "manifest.json").write_text(json.dumps({**manifest, "files": named}), "utf-8")
        assert main([*line, "--seeds", seed]) == 0
        folder = tmp_path / "runs" / "row" / f"seed-{seed}"
        records.append(json.loads((folder / "scores.json").read_text("utf-8"))["news"])
        scores = records[-1]["systems"][0]["outputs"][0]["scores"]
        count = f"nrefs:{1 + bool(named)}|"
        assert {each["signature"][: len(count)] for each in scores.values()} == {count}
        assert {"bleu", "multi-bleu"} < {*scores}
    names = [str(data / "raw" / name) for name in ("news.de", "news.de.1")]
    assert [each.get("references") for each in records] == [names, None]
    assert records[0]["checksums"]["reference"] != records[1]["checksums"]["reference"]
    page = ["--output", tmp_path / "page"]
    done = command("capsnmt.report", tmp_path / "runs" / "row", *page)
    is_refusal(done.returncode, done.stderr, "the reference of news", "report them separately")
    # the same translations are scored by what there is now
    (data / "manifest.json").write_text(json.dumps({**manifest, "files": files}), "utf-8")
    printed = succeed(RUN, *line, "--seeds", "1,2")
    assert printed.count("score news: complete") == 1
    assert printed.count("generate news: complete") == 2
    summary = json.loads((tmp_path / "runs" / "row" / "summary.json").read_text("utf-8"))
    assert summary["seeds"] == [1, 2]
    assert summary["scores"]["news"]["bleu"]["signature"].startswith("nrefs:2|")
    succeed("capsnmt.report", tmp_path / "runs" / "row", *page)
    written = (tmp_path / "page" / "report.md").read_text("utf-8")
    assert "sentences, 2 references" in written
    assert "| reference (de) |" in written
    # the same by other tokens
    (data / "tokenised" / "news.de").write_text("x\n" * len(lines), "utf-8")
    assert "-- score news\n" in succeed(RUN, *line, "--seeds", "1")
    # one that was lost is named
    for folder in ("raw", "tokenised"):
        (data / folder / "news.de.1").unlink()
        done, missing = command(RUN, *line, "--seeds", "3"), f"(no {data / folder / 'news.de.1'})"
        words = ("data.test-sets.news is not in the data", missing, "restore it, or delete")
        is_refusal(done.returncode, done.stderr, *words)


def test_each_part_of_a_training_says_what_it_ran_on(data: Path, tmp_path: Path) -> None:
    line = arguments(data, tmp_path)
    for threads, updates in (("1", "4"), ("1", "6"), ("2", "8"), ("2", "8")):
        assert main([*line, "--threads", threads, "--max-update", updates]) == 0
    trained = RunFolder(tmp_path / "runs" / "row" / "seed-1").read_training()
    assert (trained.threads, trained.updates) == (2, 8)
    assert [(part.threads, part.updates) for part in trained.earlier] == [(1, 6)]
