"""Files of logical inference: the real format, the splits, the generator, and bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
from capsnmt.sentences.logical_inference.data import (
    MAX_OPERATORS,
    is_held_out,
    read_file,
    read_split,
)
from capsnmt.sentences.logical_inference.generate import main as generate
from capsnmt.sentences.logical_inference.logic import VARIABLES, parse, relation

from capsnmt.cli import ConfigurationError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logic")
    generate(["--output", str(path), "--train", "40", "--test", "10"])
    return path


def test_generated_files_agree_with_their_names_and_labels(folder: Path) -> None:
    for number in range(MAX_OPERATORS + 1):
        for part, size in (("train", 40), ("test", 10)):
            examples = read_file(folder, part, number)
            assert len(examples) == size or number == 0
            for example in examples:
                left, right = map(parse, example.sentences)
                assert relation(left, right) == example.label
                assert max(left.operators, right.operators) == number
                assert len(left.variables | right.variables) <= 4


def test_a_generated_test_pair_is_in_no_training_file_in_either_order(folder: Path) -> None:
    parts = {
        part: {frozenset(e.sentences) for n in range(13) for e in read_file(folder, part, n)}
        for part in ("train", "test")
    }
    assert parts["train"].isdisjoint(parts["test"])
    # words alone: 6 * 7 / 2 pairs, which are all there are
    assert sum(len(read_file(folder, part, 0)) for part in parts) == len(VARIABLES) * 7 // 2


def test_the_same_seed_gives_the_same_files_and_another_seed_others(
    folder: Path, tmp_path: Path
) -> None:
    for seed in ("1", "2"):
        sizes = ["--train", "40", "--test", "10", "--seed", seed]
        generate(["--output", str(tmp_path / seed), *sizes])
    texts = [(path / "train5").read_text("utf-8") for path in (folder, *tmp_path.iterdir())]
    assert len(texts) == 3
    assert len(set(texts)) == 2


def test_splits_are_disjoint_and_training_has_at_most_six_operators(folder: Path) -> None:
    splits = {split: read_split(folder, split, 6) for split in ("train", "valid", "test")}
    pairs = {split: {frozenset(e.sentences) for e in found} for split, found in splits.items()}
    assert pairs["train"].isdisjoint(pairs["valid"])
    assert pairs["test"].isdisjoint(pairs["train"] | pairs["valid"])
    assert {e.bucket for e in splits["train"]} == set(range(7))
    assert {e.bucket for e in splits["test"]} == set(range(13))
    assert 0.02 < len(splits["valid"]) / len(splits["train"]) < 0.25
    assert all(map(is_held_out, splits["valid"]))


BAD = {
    "=\ta\n": r"bad, line 1: 1 tabs: a line is relation TAB sentence TAB sentence",
    "=\ta\ta\n?\ta\tb\n": r"bad, line 2: unknown relation '\?': choose from < > =",
    "=\ta\ta\n#\ta\t\n": r"bad, line 2: the sentence is empty",
    "=\ta\ta\n#\t( not a\tb\n": r"bad, line 2: a parenthesis is not closed",
    "<\t( a ( and b ) )\ta\n": r"bad, line 1: 1 operators in the longer sentence, but the file",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_line_is_reported_with_file_and_number(text: str, tmp_path: Path) -> None:
    (tmp_path / "train0").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=BAD[text].replace("bad", "train0")) as error:
        read_file(tmp_path, "train", 0)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_reported_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"train0: there is no such file, nor train0\.gz"):
        read_split(tmp_path, "train", 6)
