"""The recipes' corpora at miniature size, and a plain one, by the command."""

import fcntl
import gzip
import json
import os
import shutil
import time
from itertools import islice
from pathlib import Path

import pytest

from capsnmt.corpora.__main__ import main
from capsnmt.corpora.text import make_tokeniser
from tests.corpora.conftest import binarise_by_fork, recipe_of, text, tree, write_recipe
from tests.corpora.miniatures import MINIATURES, SPLITS, published, recipe_for
from tests.forked import INTERPRETER
from tests.interpreter import environment, interpreter, start
from tests.real_data import real_data

STEPS = 17


class Killed(BaseException):
    """An exception that no handler of the program catches."""


@pytest.fixture
def chain(server, tmp_path, no_fairseq):
    """The command line that prepares a miniature from the server."""

    def chain(name, **changes):
        files = MINIATURES[name]()
        server.files.update(files)
        recipe = recipe_for(name, files, tmp_path, **changes)
        return recipe, "--mirror", f"{server.address}/good", "--output", tmp_path / "prepared"

    return chain


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text("utf-8"))


@pytest.mark.parametrize("name", list(MINIATURES))
def test_every_split_has_the_published_sentences_in_order(chain, run, tmp_path, name):
    arguments = chain(name)
    run(*arguments)
    folder = tmp_path / "prepared"
    for split, numbers in SPLITS[name].items():
        for side in manifest(folder)["pair"].split("-"):
            made = text(folder / "raw" / f"{split}.{side}")
            expected = [published(name, number, side) for number in numbers]
            if name == "wmt17_zh_en" and side == "zh" and split == "train":
                made = [line.replace(" ", "") for line in made]
            assert made == expected, (split, side)
    # complete data need their sources no more, and nothing is done: others' can be used
    source = next(path for path in (folder / "sources").iterdir() if path.name[0] != ".")
    source.write_bytes(source.read_bytes() + b"\n")
    printed = run(arguments[0], "--output", folder, ends=2)
    assert f"(the content of {source.name} differs)" in printed
    shutil.rmtree(folder / "sources")
    (folder / ".lock").unlink()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert run(arguments[0], "--output", folder) == f"data-bin: {folder / 'bin'}\n"
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert after == before


@pytest.mark.parametrize("pair", ["de-en", "en-de"])
def test_iwslt14_is_tokenised_cleaned_and_lower_cased_as_by_fairseq(chain, run, tmp_path, pair):
    """In that order, in both directions: an abbreviation keeps its period, and so does no other."""
    run(*chain("iwslt14_de_en"), "--pair", pair)
    folder = tmp_path / "prepared"
    assert manifest(folder)["pair"] == pair
    assert text(folder / "tokenised/valid.de")[0] == "straße findet katze & 22 mal , herr dr. maß ."
    assert text(folder / "tokenised/valid.en")[0] == "the road finds & the cat , 22 times ."
    assert text(folder / "cased/valid.en")[0] == "The road finds & the cat, 22 times."
    assert manifest(folder)["dropped"] == {"clean train": {"kept": 90, "ratio": 10}}


@pytest.mark.parametrize("pair", ["es-en", "en-vi", "zh-en", "vi-de"])
def test_the_help_of_any_two_languages_is_aligned_by_ids_and_divided_by_pages(
    chain, run, tmp_path, pair
):
    """The same pages are held out of all, and no sentence of theirs is trained on."""
    run(*chain("libreoffice_help"), "--pair", pair)
    folder, known = tmp_path / "prepared", [set(), set()]
    for split in ("test", "valid", "train"):
        sides = [text(folder / f"raw/{split}.{side}") for side in pair.split("-")]
        # words are counted of English only
        made = [row for row in zip(*sides) if "en" in pair or "it is longer" not in row[0]]
        assert sorted(made) == sorted(
            tuple(published("libreoffice_help", number, side) for side in pair.split("-"))
            for number in SPLITS["libreoffice_help"][split]
        )
        for side, seen in zip(sides, known):
            assert seen.isdisjoint(side)
            seen.update(side)


def test_too_few_pages_to_hold_out_are_one_line(chain, run):
    printed = run(*chain("libreoffice_help", **{"held-out": {"test": 5, "valid": 90}}), ends=2)
    assert "pairs are too few to draw 90 from; give" in printed.splitlines()[-1]


def test_killed_at_any_file_the_same_command_ends_with_the_same_bytes(
    chain, run, tmp_path, monkeypatch
):
    """Every file gets its name by one rename: the first that it has not seen yet kills it."""
    arguments = chain("wmt17_zh_en", cleaning={"max-subwords": 100})  # every kind of archive
    folder, seen = tmp_path / "prepared", set()
    run(*arguments)
    expected = tree(folder)
    shutil.rmtree(folder)

    def replace(part, path, replace=os.replace):
        if path not in seen:
            seen.add(path)
            raise Killed
        replace(part, path)

    monkeypatch.setattr("os.replace", replace)
    # in Python 3.10 it keeps the function that os had
    monkeypatch.setattr("pathlib.Path.replace", lambda part, path: os.replace(part, path))
    while True:
        try:
            run(*arguments)
            break
        except Killed:
            assert not (folder / "manifest.json").exists()
            if not (folder / "bin").exists():
                (folder / "bin.part" / "left").mkdir(parents=True, exist_ok=True)  # by a real kill
    assert len(seen) > 50
    made = tree(folder)
    assert [name for name in {**made, **expected} if made.get(name) != expected.get(name)] == []


def test_cleaning_counts_what_it_drops(chain, run, server, tmp_path):
    cleaning = {"max-length": 49, "max-ratio": 3, "deduplicate": True}
    arguments = chain("iwslt15_en_vi", cleaning=cleaning)
    server.files["train.en"] += b"w " * 49 + b"\n" + b"w " * 50 + b"\n\na b c d\na b c d\n"
    server.files["train.vi"] += b"w " * 49 + b"\n" + b"w " * 50 + b"\nx\na\na b\n"
    for side in ("en", "vi"):
        server.files[f"train.{side}"] += server.files[f"train.{side}"]
        server.files[f"train.{side}"] += b"a" * 10_001 + b"\n"
    run(*arguments)
    folder = tmp_path / "prepared"
    kept = text(folder / "clean" / "train.en")
    assert len(kept) == len(set(kept)) == 42
    reasons = {"duplicate": 42, "empty": 2, "kept": 42, "length": 2, "ratio": 2, "word": 1}
    assert manifest(folder)["dropped"] == {"clean train": reasons}
    assert manifest(folder)["pairs"] == 42


def test_subwords_are_limited_in_training_only(chain, run, server, tmp_path):
    arguments = chain("iwslt15_en_vi", cleaning={"max-subwords": 16})
    for side, line in (("en", b"\n"), ("vi", b"x\n")):
        server.files[f"train.{side}"] += line
    run(*arguments)
    folder = tmp_path / "prepared"
    lengths = {
        name: [len(line.split()) for line in text(folder / name)]
        for name in ("bpe/train.en", "limited/train.en", "bpe/test.en")
    }
    assert max(lengths["bpe/train.en"]) > 16 >= max(lengths["limited/train.en"])
    assert max(lengths["bpe/test.en"]) > 16
    assert manifest(folder)["pairs"] == len(lengths["limited/train.en"])
    assert manifest(folder)["dropped"]["clean train"] == {"empty": 1, "kept": 40}


def test_sentencepiece_in_place_of_bpe_for_each_language(chain, run, tmp_path, monkeypatch):
    """Its BPE does not depend on the number of threads, as its unigram model does."""
    segmentation = {"size": 60, "method": "sentencepiece", "joint": False}
    arguments = chain("iwslt15_en_vi", segmentation=segmentation)
    run(*arguments)
    monkeypatch.setattr("capsnmt.corpora.__main__.CORES", 2)
    more = [*arguments[:-1], tmp_path / "more", "--workers", 2]
    assert main(list(map(str, more))) == 0
    made = [tmp_path / name / "bpe/train.vi" for name in ("prepared", "more")]
    assert made[0].read_bytes() == made[1].read_bytes()
    folder = tmp_path / "prepared"
    assert manifest(folder)["models"]["vi"] == "bpe/sentencepiece.model.vi"
    for side in ("en", "vi"):
        segmented = text(folder / "bpe" / f"test.{side}")
        joined = [line.replace(" ", "").replace("▁", " ").strip() for line in segmented]
        assert joined == text(folder / "tokenised" / f"test.{side}")


def test_any_number_of_workers_makes_the_same_bytes(
    recipe_file, corpus, run, tmp_path, no_fairseq, monkeypatch
):
    monkeypatch.setattr("capsnmt.corpora.parallel.LINES", 3)
    monkeypatch.setattr("capsnmt.corpora.__main__.CORES", 3)
    given = [recipe_file, "--local", corpus, "--deduplicate"]
    run(*given, "--output", tmp_path / "one")
    assert main(list(map(str, [*given, "--output", tmp_path / "more", "--workers", 100_000]))) == 0
    made = [tree(tmp_path / name) for name in ("one", "more")]
    for each in made:
        del each["manifest.json"]  # the command
    assert made[0] == made[1]


@pytest.mark.system
def test_text_that_is_published_in_subwords_has_a_data_bin(run, tmp_path, monkeypatch):
    """The real text and merges of a published recipe, and fairseq-preprocess itself."""
    monkeypatch.setattr("capsnmt.corpora.binarise.binarise", binarise_by_fork)
    published, local = real_data("multi30k_lowercase"), tmp_path / "local"
    local.mkdir()
    (local / "code.gz").write_bytes((published / "code.gz").read_bytes())
    for path in published.glob("*.*.gz"):
        with gzip.open(path, "rb") as stream:
            (local / path.stem).write_bytes(b"".join(islice(stream, 200)))
    output = tmp_path / "out"
    printed = run("multi30k_lowercase", "--local", local, "--output", output)
    assert "note:" in printed  # they are heads of the published files
    for split, stem in (("train", "train"), ("valid", "valid"), ("test_2016_flickr", "test.2016")):
        assert text(output / "bpe" / f"{split}.de") == text(local / f"{stem}.de")
        assert "@@" not in (output / "raw" / f"{split}.de").read_text("utf-8")
    assert {path.name for path in (output / "bin").glob("*.de.idx")} == {
        f"{subset}.en-de.de.idx" for subset in ("train", "valid", "test", "test1")
    }
    assert manifest(output)["subsets"]["test_2017_flickr"] == "test1"
    words = [(output / "bin" / f"dict.{side}.txt").read_bytes() for side in ("en", "de")]
    assert words[0] == words[1]
    # the tokeniser that the manifest has for raw text makes the published tokens of it
    tokenise = make_tokeniser(manifest(output)["tokenisers"]["en"], "en")
    with gzip.open(real_data("multi30k") / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as raw:
        tokens = [tokenise(line.rstrip("\n")) for line in islice(raw, 200)]
    assert tokens == text(output / "tokenised" / "test_2016_flickr.en")


def test_a_complete_folder_is_of_one_recipe_and_one_text(
    recipe_file, corpus, run, tmp_path, no_fairseq
):
    folder = tmp_path / "prepared"
    given = ("--local", corpus, "--output", folder)
    run(recipe_file, *given)
    complete = tree(folder)
    other = write_recipe(tmp_path / "other.yaml", recipe_of(corpus))
    for arguments, word in (
        ([other, *given], "name"),
        ([recipe_file, *given, "--deduplicate"], "cleaning"),
    ):
        printed = run(*arguments, ends=2)
        assert printed.startswith(f"error: --output {folder} holds tiny en-de with another")
        assert f"({word} differs)" in printed
    original = (corpus / "test.de").read_bytes()
    (corpus / "test.de").unlink()  # or gzipped since: complete data do not need their sources
    (corpus / "test.de.gz").write_bytes(gzip.compress(original))
    run(recipe_file, *given)
    corpus.rename(tmp_path / "elsewhere")
    run(recipe_file, *given)
    (tmp_path / "elsewhere").rename(corpus)
    (corpus / "test.de.gz").write_bytes(gzip.compress(original[1:]))
    printed = run(recipe_file, *given, ends=2)
    assert "(the content of test.de differs)" in printed
    (corpus / "test.de").write_bytes(original[1:])
    printed = run(recipe_file, *given, ends=2)
    assert "(the content of test.de differs)" in printed
    assert tree(folder) == complete
    (corpus / "test.de.gz").unlink()
    (folder / "manifest.json").unlink()  # then only what has changed is made again
    printed = run(recipe_file, *given)
    redone = [line for line in printed.splitlines() if line[0] == "[" and "complete" not in line]
    assert [line.partition("] ")[2] for line in redone] == [
        "raw", "tokenise test.de", "segment test.de", "binarise",
    ]  # fmt: skip
    complete = tree(folder)
    for name in ("bin", "raw"):  # to make room, with the manifest left
        shutil.rmtree(folder / name)
        run(recipe_file, *given)
        assert tree(folder) == complete
    for name in ("clean/train.en", "bpe/codes", "bin/train.en.bin"):  # damaged
        (folder / name).write_bytes(complete[name][:-2] + b"?\n")
        (folder / "manifest.json").unlink()
        # the steps after the damaged one find their inputs unchanged
        assert run(recipe_file, *given).count(": complete\n") == STEPS - 2
        assert tree(folder) == complete
    plain, packed = corpus / "train.en", corpus / "train.en.gz"  # unpacked since, to be edited
    original = plain.read_bytes()
    packed.write_bytes(gzip.compress(original))
    plain.unlink()
    (folder / "manifest.json").unlink()
    run(recipe_file, *given)
    for _ in range(2):  # beside the packed one, and alone
        plain.write_bytes(original)
        run(recipe_file, *given)
        plain.write_bytes(original[1:])
        assert "(the content of train.en.gz differs)" in run(recipe_file, *given, ends=2)
        packed.unlink(missing_ok=True)


def test_a_second_process_waits_for_the_first(recipe_file, corpus, tmp_path):
    folder, streams = tmp_path / "prepared", [tmp_path / "output", tmp_path / "errors"]
    folder.mkdir()
    for stream in streams:
        stream.touch()
    words = [recipe_file, "--local", corpus, "--output", folder]
    # starting the interpreter sets a variable of the environment
    variables = {INTERPRETER: str(interpreter()), **environment()}
    with (folder / ".lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        streams.insert(0, Path(os.devnull))
        second = start("capsnmt.corpora", [*map(str, words)], variables, streams)
        waiting = "waiting for another process that prepares"
        while not (printed := streams[2].read_text("utf-8")).startswith(waiting):
            assert second.is_alive(), printed
            time.sleep(0.01)
        time.sleep(0.2)
        assert [path.name for path in folder.iterdir()] == [".lock"]
    second.join()
    assert second.exitcode == 0, streams[2].read_text("utf-8")
    assert (folder / "manifest.json").is_file()


def test_a_dry_run_lists_the_steps_and_does_nothing(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["wmt14_en_de", "--output", "x", "--dry-run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("# wmt14_en_de en-de: ")
    assert "[1] fetch training-parallel-europarl-v7.tgz -> x/sources/training-" in printed[1]
    assert printed[-1].endswith("binarise -> x/bin")
    assert not list(tmp_path.iterdir())
