from __future__ import annotations

import fcntl
import hashlib
import json
import shutil

import pytest

from capsnmt.checksums import NAME
from capsnmt.corpora import engine
from capsnmt.corpora.__main__ import main
from capsnmt.corpora.segmentation import METHODS
from capsnmt.files import hexdigest
from tests.corpora.conftest import recipe_of, tree, write_recipe

STEPS = 16  # of a recipe with three splits


@pytest.fixture
def prepared(run, recipe_file, corpus, tmp_path, no_fairseq):
    """A complete preparation of the tiny corpus, and its arguments."""
    folder = tmp_path / "prepared"
    arguments = recipe_file, "--data", corpus, "--output", folder
    status, printed = run(*arguments)
    assert status == 0, printed
    return folder, arguments


def test_everything_is_made_and_raw_text_is_untouched(prepared, corpus):
    folder, _ = prepared
    assert {path.name for path in folder.iterdir()} == {
        *("raw", "tokenised", "clean", "bpe", "bin", "manifest.json", ".lock", NAME)
    }
    for published, split in (("train", "train"), ("val", "valid"), ("test", "test")):
        for language in ("en", "de"):
            raw = folder / "raw" / f"{split}.{language}"
            assert raw.read_bytes() == (corpus / f"{published}.{language}").read_bytes()
    first = (folder / "tokenised" / "train.de").read_text(encoding="utf-8").splitlines()[1]
    assert first == "Zwei Hunde rennen ."
    segmented = (folder / "bpe" / "train.de").read_text(encoding="utf-8")
    assert "@@ " in segmented
    tokenised = (folder / "tokenised" / "train.de").read_text(encoding="utf-8")
    assert segmented.replace("@@ ", "") == tokenised


def test_the_manifest_is_correct_about_every_file(prepared):
    folder, _ = prepared
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["subsets"] == {"train": "train", "valid": "valid", "test": "test"}
    assert manifest["pair"] == "en-de"
    assert manifest["command"].startswith("python -m capsnmt.corpora ")
    recorded = {
        name: file for step in manifest["steps"].values() for name, file in step["files"].items()
    }
    made = tree(folder)
    assert recorded.keys() == made.keys() - {"manifest.json"}
    for name, file in recorded.items():
        assert file["sha256"] == hashlib.sha256(made[name]).hexdigest()
        assert file["bytes"] == len(made[name])
        if "lines" in file:
            assert file["lines"] == made[name].count(b"\n")
            assert file["tokens"] == len(made[name].split())
    assert manifest["steps"]["clean train"]["notes"]["pairs"] == {"kept": 20}
    assert "sacremoses" in manifest["steps"]["tokenise train.en"]["tools"]
    assert "fairseq_cli.preprocess" in manifest["steps"]["binarise"]["command"]


def test_a_complete_preparation_is_not_changed(prepared, run):
    folder, arguments = prepared
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}
    status, printed = run(*arguments)
    assert status == 0
    assert printed.count("complete, skipped") == STEPS
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}
    assert after == before


def test_a_complete_preparation_needs_its_sources_no_more(prepared, run, corpus):
    folder, (recipe, *_) = prepared
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}
    status, printed = run(recipe, "--output", folder, "--offline")
    assert status == 0, printed
    assert printed.count("complete, skipped") == STEPS
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}
    assert after == before
    # another text in the user's folder is noticed, and a damaged file needs the sources
    (corpus / "test.en").write_text("Other .\n" * 4, encoding="utf-8")
    assert (
        "complete, skipped"
        not in run(recipe, "--data", corpus, "--output", folder)[1]
        .split("tokenise test.en")[1]
        .split("[")[0]
    )
    (folder / "raw" / "test.en").unlink()
    status, printed = run(recipe, "--output", folder, "--offline")
    assert status == 2
    assert "is missing: run once without --offline" in printed


def test_a_file_is_read_again_only_if_it_has_changed(prepared, run, monkeypatch):
    folder, arguments = prepared
    read = []

    def counted(path, algorithm, digest=hexdigest):
        read.append(path)
        return digest(path, algorithm)

    monkeypatch.setattr("capsnmt.checksums.hexdigest", counted)
    assert run(*arguments)[0] == 0
    assert read == []
    (folder / "raw" / "test.en").touch()
    assert run(*arguments)[0] == 0
    assert read == [folder / "raw" / "test.en"]
    read.clear()
    status, printed = run(*arguments, "--verify")
    assert status == 0
    assert printed.count("complete, skipped") == STEPS
    made = {folder / name for name in tree(folder)} - {folder / "manifest.json"}
    assert made < set(read)
    assert len(set(read)) == len(read)
    read.clear()
    (folder / NAME).write_text("[]")  # a lost cache costs one reading, and nothing else
    assert run(*arguments)[0] == 0
    assert made < set(read)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("raw/valid.de", "delete"),
        ("clean/train.en", "truncate"),
        ("bpe/codes", "flip"),
        ("bin/train.en.bin", "delete"),
        ("bin/train.en.bin", "delete manifest"),
    ],
)
def test_damaged_output_is_made_again(prepared, run, name, damage):
    folder, arguments = prepared
    complete, path = tree(folder), folder / name
    if damage == "flip":
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    elif damage == "truncate":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        path.unlink()
    if damage == "delete manifest":
        (folder / "manifest.json").unlink()
    status, printed = run(*arguments)
    assert status == 0, printed
    # Only the damaged step is repeated; the steps after it find their inputs unchanged.
    assert printed.count("complete, skipped") == (0 if damage == "delete manifest" else STEPS - 1)
    assert tree(folder) == complete


def test_an_unreadable_manifest_starts_the_preparation_again(prepared, run):
    folder, arguments = prepared
    complete = tree(folder)
    (folder / "manifest.json").write_text('{"steps": ')
    assert run(*arguments)[0] == 0
    assert tree(folder) == complete


def test_a_changed_setting_redoes_what_depends_on_it_and_no_more(prepared, run, corpus):
    folder, arguments = prepared
    write_recipe(arguments[0], {**recipe_of(corpus), "segmentation": {"size": 5}})
    status, printed = run(*arguments)
    assert status == 0
    redone = [line.split("] ")[1] for line in printed.splitlines() if line.startswith("[")]
    redone = [line for line in redone if "skipped" not in line]
    assert redone[0] == "learn subwords"
    assert redone[-1] == "binarise"
    assert len(redone) == 8
    assert (folder / "bpe" / "codes").read_text().count("\n") == 6


def test_a_changed_source_redoes_everything_made_of_it(prepared, run, corpus):
    folder, arguments = prepared
    path = corpus / "test.de"
    path.write_text(path.read_text(encoding="utf-8").replace("Zwei", "Drei"), encoding="utf-8")
    status, printed = run(*arguments)
    assert status == 0
    assert "note:" in printed  # it is not the file that the recipe knows
    assert "Drei" in (folder / "raw" / "test.de").read_text(encoding="utf-8")
    assert "D@@ r" in (folder / "bpe" / "test.de").read_text(encoding="utf-8")


def test_another_recipe_is_refused_by_a_folder_in_use(prepared, run, tmp_path):
    folder, arguments = prepared
    other = arguments[0].with_name("other.yaml")
    shutil.copy(arguments[0], other)
    complete = tree(folder)
    status, printed = run(other, *arguments[1:])
    assert status == 2
    assert f"--output {folder} holds recipe tiny, not other: give another folder" in printed
    assert tree(folder) == complete


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda c: _drop_line(c / "val.de"), "val.de has 7 lines but"),
        (lambda c: (c / "test.de").write_bytes(b"sch\xf6n\n" * 4), "test.de, line 1: not UTF-8"),
        (lambda c: (c / "test.en").write_bytes(b" \n" * 4), "test.en: all 4 lines are blank"),
        (lambda c: (c / "test.en").unlink(), "test.en or test.en.gz is missing; put it there"),
        (lambda c: [_blank(c / f"train.{side}") for side in ("en", "de")], "no training pair of"),
    ],
)
def test_a_damaged_corpus_is_one_line_and_leaves_no_output(
    run, recipe_file, corpus, tmp_path, no_fairseq, spoil, message
):
    spoil(corpus)
    folder = tmp_path / "prepared"
    status, printed = run(recipe_file, "--data", corpus, "--output", folder)
    assert status == 2
    errors = [line for line in printed.splitlines() if line.startswith("error: ")]
    assert printed.splitlines()[-1:] == errors
    assert message in errors[0]
    made = tree(folder)
    assert not any(".part" in name for name in made.keys() - {"manifest.json.part"})
    assert "manifest.json" not in made
    assert not any(name.startswith(("bpe/", "bin/", "clean/")) for name in made)


def _drop_line(path):
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), encoding="utf-8")


def _blank(path):
    path.write_text("\n" * 20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["nonsense", "--output", "x"],
            "recipe 'nonsense' is unknown: use catalogues, iwslt14_es_en",
        ),
        (["multi30k", "--output", "x", "--data", "none"], "--local none: no such folder"),
        (["multi30k", "--output", "x", "--pair", "de-en"], "--pair de-en: "),
        (["multi30k", "--output", "x", "--offline"], "--offline: x/sources/train.en.gz is missing"),
        (["multi30k", "--output", "file/x", "--offline"], "--output file/x: file is a file"),
    ],
)
def test_a_wrong_command_line_is_one_line(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    status, printed = run(*arguments)
    assert status == 2
    assert message in printed.splitlines()[-1]
    assert "Traceback" not in printed


def test_workers_must_be_a_number_of_processes(capsys):
    status = main(["multi30k", "--output", "x", "--workers", "0"])
    assert status == 2
    assert "--workers: '0' is not a whole number" in capsys.readouterr().err


def test_a_second_process_waits_for_the_first(run, recipe_file, corpus, tmp_path, monkeypatch):
    folder = tmp_path / "prepared"
    folder.mkdir()
    first = (folder / ".lock").open("w")
    fcntl.flock(first, fcntl.LOCK_EX)
    printed = []

    def say(message):
        printed.append(message)
        if message.startswith("waiting for another process"):
            assert [path.name for path in folder.iterdir()] == [".lock"]
            first.close()

    monkeypatch.setattr(engine, "say", say)
    monkeypatch.setattr(engine, "run_steps", lambda steps, manifest: printed.append("prepared"))
    status, _ = run(recipe_file, "--data", corpus, "--output", folder)
    assert status == 0
    assert printed[0].startswith("waiting for another process")
    assert printed[-1] == "prepared"


def test_an_interrupt_reports_how_to_resume_and_leaves_no_partial_file(
    run, recipe_file, corpus, tmp_path, monkeypatch, no_fairseq
):
    folder = tmp_path / "prepared"
    arguments = recipe_file, "--data", corpus, "--output", folder

    def interrupted(models, merges, workers):
        for codes in models:
            codes.write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(METHODS, "bpe", interrupted)
        status, printed = run(*arguments)
    assert status == 130
    assert printed.splitlines()[-1] == "error: stopped: the same command resumes"
    assert not any(name.startswith("bpe/") for name in tree(folder))
    status, printed = run(*arguments)
    assert status == 0
    assert printed.count("complete, skipped") == 8
