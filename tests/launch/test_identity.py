"""Never another experiment: a folder is taken for what is asked for only if it holds that."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Callable, List

import pytest
import yaml

from capsnmt.launch.__main__ import main
from capsnmt.runs.folder import RunFolder
from tests.commands import command, is_refusal, made_once, succeed
from tests.kills import launch as kill
from tests.small_row import arguments

pytestmark = pytest.mark.system
RUN = "capsnmt.launch"


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of a row, its recipe, and its finished run below ``out``."""

    def make(folder: Path) -> None:
        kill.write_sources(folder / "sources")
        (folder / "out").mkdir()
        succeed(RUN, *kill.command(folder / "sources", folder / "out"))

    return made_once(tmp_path_factory, "begun", make)


@pytest.fixture
def copied(begun: Path, tmp_path: Path) -> Path:
    """A copy of it: other times, other inodes, another folder."""
    shutil.copytree(begun / "sources", tmp_path / "sources", copy_function=shutil.copyfile)
    shutil.copytree(begun / "out", tmp_path / "out", copy_function=shutil.copyfile)
    row = tmp_path / "sources" / "tiny.yaml"
    settings = yaml.safe_load(row.read_text("utf-8"))
    settings["data"]["recipe"] = str(tmp_path / "sources" / "recipe.yaml")
    row.write_text(yaml.safe_dump(settings), "utf-8")
    return tmp_path


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def other_data(folder: Path) -> List[str]:
    """The text, with one sentence more, in another folder."""
    shutil.copytree(folder / "sources" / "corpus", folder / "other")
    for language in ("en", "de"):
        with (folder / "other" / f"train.{language}").open("a", encoding="utf-8") as file:
            file.write("one more\n")
    return ["--data", str(folder / "other")]


def other_text(folder: Path) -> List[str]:
    replaced(folder / "sources/corpus/train.en", "\n", " more\n")
    return []


def other_recipe(folder: Path) -> List[str]:
    replaced(folder / "sources/recipe.yaml", "size: 30", "size: 31")
    return []


def other_direction(folder: Path) -> List[str]:
    return ["--set", "data.source-lang=de", "--set", "data.target-lang=en"]


# each changes the folder, and returns more arguments
CHANGES = (other_text, other_recipe, other_data, other_direction)


@pytest.mark.parametrize("change", CHANGES)
def test_data_of_another_recipe_text_or_direction_are_refused(
    change: Callable[[Path], List[str]], copied: Path
) -> None:
    more = change(copied)
    before = {path: path.read_bytes() for path in (copied / "out").rglob("*.json")}
    done = command(RUN, *kill.command(copied / "sources", copied / "out"), *more)
    is_refusal(done.returncode, done.stderr, "prepared", "differs", "give another folder")
    assert {path: path.read_bytes() for path in (copied / "out").rglob("*.json")} == before


def test_a_copy_repeats_nothing_wherever_its_text_lies(copied: Path) -> None:
    """A moved folder with other times, and the same text in another place, is the same."""
    shutil.move(str(copied / "sources" / "corpus"), str(copied / "elsewhere"))
    line = kill.command(copied / "sources", copied / "out")
    line[line.index("--data") + 1] = str(copied / "elsewhere")
    said = succeed(RUN, *line)
    steps = [line for line in said.splitlines() if line.startswith("-- ")]
    assert len(steps) > 3
    assert [line for line in steps if ": complete" not in line] == []


# --- data that the user binarised


Binarise = Callable[[Path, Callable[[List[str]], List[str]]], Path]


@pytest.fixture
def binarised(corpus: Path) -> Binarise:
    """``binarised(FOLDER, CHANGE)`` prepares the small corpus with other target sentences."""

    def make(folder: Path, change: Callable[[List[str]], List[str]]) -> Path:
        (folder / "raw").mkdir(parents=True)
        for path in corpus.glob("*.??"):
            lines = path.read_text("utf-8").splitlines()
            new = change(lines) if path.name == "train.de" else lines
            (folder / path.name).write_text("".join(f"{line}\n" for line in new), "utf-8")
        prefixes = [("--trainpref", folder / "train"), ("--validpref", folder / "valid")]
        words = [*(word for pair in prefixes for word in pair), "--testpref", folder / "test"]
        succeed(
            *("fairseq_cli.preprocess", "-s", "en", "-t", "de", "--joined-dictionary"),
            *("--srcdict", corpus / "bin" / "dict.en.txt", *words, "--destdir", folder / "bin"),
        )
        for language in ("en", "de"):
            shutil.copy(folder / f"test.{language}", folder / "raw" / f"news.{language}")
        manifest = '{"pair": "en-de", "pairs": 48, "subsets": {"valid": "valid", "news": "test"}}'
        (folder / "manifest.json").write_text(manifest, "utf-8")
        return folder

    return make


def test_another_alignment_with_the_same_words_is_another_training(
    binarised: Binarise, tmp_path: Path
) -> None:
    """A corpus shifted by one line, and mended: both have the same dictionaries."""
    shifted = binarised(tmp_path / "data", lambda lines: [*lines[1:], lines[0]])
    line = arguments(shifted, tmp_path)
    assert main(line) == 0
    shutil.rmtree(shifted)
    binarised(tmp_path / "data", list)
    done = command(RUN, *line)
    is_refusal(done.returncode, done.stderr, "was trained with data: train.en-de.de.bin ")
    # what it was is taken again
    shutil.rmtree(shifted)
    binarised(tmp_path / "data", lambda lines: [*lines[1:], lines[0]])
    assert succeed(RUN, *line).count(": complete") == 3


def test_a_trained_model_is_of_one_direction(binarised: Binarise, tmp_path: Path) -> None:
    """A joint dictionary is the same in both."""
    line = arguments(binarised(tmp_path / "data", list), tmp_path)
    assert main(line) == 0
    back = ["--set", "data.source-lang=de", "--set", "data.target-lang=en"]
    done = command(RUN, *line, *back)
    is_refusal(done.returncode, done.stderr, "was trained with data.source-lang en, not de")


def test_seeds_of_other_references_have_no_mean(binarised: Binarise, tmp_path: Path) -> None:
    data = binarised(tmp_path / "data", list)
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


def test_each_part_of_a_training_says_what_it_ran_on(binarised: Binarise, tmp_path: Path) -> None:
    line = arguments(binarised(tmp_path / "data", list), tmp_path)
    for threads, updates in (("1", "4"), ("1", "6"), ("2", "8"), ("2", "8")):
        assert main([*line, "--threads", threads, "--max-update", updates]) == 0
    trained = RunFolder(tmp_path / "runs" / "row" / "seed-1").read_training()
    assert (trained.threads, trained.updates) == (2, 8)
    assert [(part.threads, part.updates) for part in trained.earlier] == [(1, 6)]
