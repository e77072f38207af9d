"""Configurations: inheritance, overrides, and the errors of bad files."""

from __future__ import annotations

from pathlib import Path

import pytest
from capsnmt.launch.config import available, find, load, override, require_complete

from capsnmt.cli import ConfigurationError


@pytest.fixture
def write(tmp_path: Path):
    def write_file(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_a_row_sets_only_what_differs_from_its_base(write):
    write("base", "arch: a\ntrain: {lr: 0.005, dropout: 0.3}\naverage: {last-updates: 10}\n")
    write("middle", "extends: base\ntrain: {dropout: 0.1}\n")
    row = load(write("row", "extends: middle\narch: b\n"))
    assert row.row == "row"
    assert row.settings == {
        "arch": "b",
        "train": {"lr": 0.005, "dropout": 0.1},
        "average": {"last-updates": 10},
    }


def test_every_leaf_has_its_origin(write):
    base = write("base", "train: {lr: 0.005, dropout: 0.3}\n")
    row = load(write("row", "extends: base\ntrain: {dropout: 0.1}\n"))
    override(row, ["train.clip-norm=1.0"])
    assert row.where("train.lr") == str(base)
    assert row.where("train.dropout").endswith("row.yaml")
    assert row.where("train.clip-norm") == "--set"


def test_null_removes_what_the_base_sets(write):
    write("base", "train: {lr: 0.005, fp16-scale-window: 8}\naverage: {last-updates: 10}\n")
    row = load(write("row", "extends: base\ntrain: {fp16-scale-window: null}\naverage: null\n"))
    assert row["train"] == {"lr": 0.005}
    assert row["average"] is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("learning-rate: 1", ["learning-rate: unknown key", "arch"]),
        ("data: {langs: en}", ["data.langs: unknown key", "source-lang"]),
        ("arch: 3", ["arch: 3", "a text"]),
        ("precision: half", ["precision: 'half'", "fp32 or fp16 or bf16 or auto"]),
        ("train: {max-update: many}", ["train.max-update: 'many'", "1 or more"]),
        ("train: {lr: [1, 2]}", ["train.lr: [1, 2]", "a text, a number"]),
        ("3: a", ["the key 3 is not text"]),
        ("train: {lr: 1", ["not valid YAML"]),
        ("extends: nothing", ["extends: there is no", "DATASET/ROW or one of base"]),
        ("extends: bad", ["extends itself"]),
    ],
)
def test_a_bad_file_is_reported_in_one_line_that_names_it(write, text: str, expected: list):
    write("base", "{}")
    path = write("bad", text)
    with pytest.raises(ConfigurationError) as error:
        load(path)
    message = str(error.value)
    assert "\n" not in message
    assert all(part in message for part in [str(path), *expected])


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("train.lr", "give KEY=VALUE"),
        ("trane.lr=1", "trane.lr: unknown key"),
        ("precision=fp8", "fp32 or fp16 or bf16 or auto"),
        ("arch.size=1", "arch takes a text"),
        ("arch=" + "[" * 40 + "]" * 40, "arch: [[[["),
    ],
)
def test_a_bad_override_is_reported_in_one_line(write, assignment: str, expected: str):
    row = load(write("row", "arch: a"))
    with pytest.raises(ConfigurationError, match="--set") as error:
        override(row, [assignment])
    assert expected in str(error.value)


def test_an_override_takes_precedence_and_null_removes(write):
    row = load(write("row", "train: {lr: 0.005, clip-norm: 1}"))
    override(row, ["train.lr=0.003", "train.clip-norm=null", "train.share-all-embeddings=true"])
    assert row["train"] == {"lr": 0.003, "share-all-embeddings": True}


def test_a_required_key_that_is_not_set_is_named(write):
    with pytest.raises(ConfigurationError, match=r"dataset is not set.*--set dataset=VALUE"):
        require_complete(load(write("row", "arch: a")))


def test_an_unknown_configuration_lists_the_valid_ones_of_the_dataset():
    with pytest.raises(ConfigurationError) as error:
        find("no_such_row", "multi30k")
    assert "no_such_row" in str(error.value)
    assert "multi30k/em_routing" in str(error.value)
    assert "demo/" not in str(error.value)


def test_of_many_configurations_the_most_similar_are_named():
    with pytest.raises(ConfigurationError) as error:
        find("li2019_efective", "wmt14_en_de")
    assert "such as wmt14_en_de/li2019_effective, " in str(error.value)
    assert len(str(error.value)) < 500


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """A user's folder ``./configs/multi30k``."""
    folder = tmp_path / "configs" / "multi30k"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_users_configurations_add_to_ours_and_come_first(own: Path):
    (own / "mine.yaml").write_text("extends: multi30k/baseline\ntrain: {lr: 0.5}\n")
    (own / "child.yaml").write_text("extends: mine\n")
    child = load(find("child", "multi30k"))
    assert child["train.lr"] == 0.5
    assert child["train.optimizer"] == "fused_adam"
    assert find("baseline", "multi30k").is_file()
    assert {"multi30k/mine", "multi30k/baseline", "demo/baseline"} < set(available())
    (own / "baseline.yaml").write_text("extends: multi30k/baseline\narch: other\n")
    assert load(find("multi30k/baseline"))["arch"] == "other"
    assert load(find("child", "multi30k"))["arch"] == "other"


def test_an_unknown_configuration_lists_the_users_and_ours(own: Path):
    (own / "mine.yaml").write_text("{}")
    with pytest.raises(ConfigurationError) as error:
        find("mien", "multi30k")
    assert "multi30k/mine" in str(error.value)
    assert "multi30k/baseline" in str(error.value)


def test_names_and_paths_find_the_same_file():
    by_name = find("multi30k/em_routing")
    assert find("em_routing", "multi30k") == find(str(by_name)) == by_name
