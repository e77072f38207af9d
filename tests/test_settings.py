"""The validator of settings: it refuses each wrong value and each trap of YAML in one line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
import yaml

from capsnmt.cli import ConfigurationError
from capsnmt.files import bundled_folder
from capsnmt.settings import (
    COUNT,
    FLAG,
    INTEGER,
    LIST,
    LOADERS,
    MAX_BYTES,
    NUMBER,
    POSITIVE,
    SECTION,
    SWITCH,
    TEXT,
    Free,
    Kind,
    build,
    check,
    one_of,
    read_yaml,
)

VALUES = ["text", 0, 1, -1, 0.5, True, [1], {"a": 1}, None]
FITTING = {
    TEXT: ["text"],
    INTEGER: [0, 1, -1],
    COUNT: [1],
    NUMBER: [0, 1, -1, 0.5],
    POSITIVE: [1, 0.5],
    SWITCH: [True],
    FLAG: ["text", 0, 1, -1, 0.5, True],
    LIST: [[1]],
    SECTION: [{"a": 1}],
    one_of("text", "other"): ["text"],
}


@pytest.mark.parametrize("kind", FITTING, ids=lambda kind: kind.allowed)
def test_a_kind_takes_its_values_and_no_other(kind: Kind):
    taken = [value for value in VALUES if kind.fits(value)]
    assert [(value, type(value)) for value in taken] == [(v, type(v)) for v in FITTING[kind]]


SCHEMA: Dict[str, Any] = {"name": TEXT, "batch": {"size": COUNT}, "flags": Free(FLAG, {"n": COUNT})}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("nmae", "x", "nmae: unknown key: the file may have name, batch, flags"),
        ("batch.siez", 1, "batch.siez: unknown key: batch may have size"),
        ("batch.size", 0, "batch.size: 0: give a whole number, 1 or more"),
        ("batch", 3, "batch: 3: give a mapping"),
        ("flags.n", 0, "flags.n: 0: give a whole number, 1 or more"),
        ("flags.other", [], "flags.other: []: give a text, a number, true or false"),
        ("name.x", 1, "name.x: name takes a text, it has no keys"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_origin(key: str, value: Any, message: str):
    with pytest.raises(ConfigurationError) as error:
        check(SCHEMA, key.split("."), value, "row.yaml")
    assert str(error.value) == f"row.yaml: {message}"


def test_a_long_value_is_shortened():
    with pytest.raises(ConfigurationError, match=r"name: \[0, 1, .*\.\.\.: give a text") as error:
        check(SCHEMA, ["name"], list(range(10_000)), "row.yaml")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("value", [None, 3])
def test_a_valid_value_and_none_pass(value: Any):
    check(SCHEMA, ["batch", "size"], value, "row.yaml")


@dataclass
class Settings:
    name: str
    size: int
    limits: Mapping[str, int]
    ratio: float = 1.0
    joint: bool = True
    files: tuple[str, ...] = ()


GOOD = {"size": 3, "limits": {}}


def test_a_dataclass_is_built_from_a_mapping():
    built = build(Settings, {**GOOD, "files": ["a"]}, "x.yaml", "part", name="fixed")
    assert (built.size, built.files, built.ratio, built.name) == (3, ["a"], 1.0, "fixed")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], "part: [1]: give a mapping"),
        ({"size": 3}, "part.limits is not set: part may have size, limits, ratio, joint, files"),
        ({**GOOD, "siez": 3}, "part.siez: unknown key: part may have size, limits"),
        ({**GOOD, "name": "x"}, "part.name: unknown key"),
        ({**GOOD, "size": True}, "part.size: True: give a whole number"),
        ({**GOOD, "limits": 3}, "part.limits: 3: give a mapping"),
        ({**GOOD, "ratio": "x"}, "part.ratio: 'x': give a number"),
        ({**GOOD, "joint": 1}, "part.joint: 1: give true or false"),
        ({**GOOD, "files": "x"}, "part.files: 'x': give a list"),
    ],
)
def test_a_wrong_mapping_is_named_with_its_origin(values: Any, message: str):
    with pytest.raises(ConfigurationError) as error:
        build(Settings, values, "x.yaml", "part", name="fixed")
    assert str(error.value).startswith(f"x.yaml: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1, c: 2}", " line 2: not valid YAML: the key c is repeated"),
        ("a: [1\nb: {", " line 2: not valid YAML: "),
        ("a: &x [1]\nb: *x", " line 2: not valid YAML: aliases (*name) are not supported"),
        ("a: !!python/name:os.system", " line 1: not valid YAML: could not determine"),
        ("- a list", " a mapping of keys to values is needed"),
        ("[" * 5000, " line 1: not valid YAML: nested too deeply"),
        ("a: " + "[" * 5000 + "]" * 5000, " line 1: not valid YAML: nested too deeply"),
        ("a: {1: b}", " line 1: not valid YAML: the key 1 is not text: put it in quotes"),
        ("no: b", " line 1: not valid YAML: the key False is not text: put it in quotes"),
        ("a: 2026-13-45", " not valid YAML: month must be in 1..12"),
        ("a: " + "x" * MAX_BYTES, " more than 1,048,576 bytes"),
        (b"a: \xff", " not valid YAML: "),
        (None, " cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_as_settings_is_one_line(
    tmp_path: Path, text: Any, message: str
):
    path = tmp_path / "bad.yaml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigurationError) as error:
        read_yaml(path)
    assert str(error.value).startswith(f"{path}:{message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("loader", LOADERS)
def test_every_loader_reads_what_the_plain_one_reads(loader: Any):
    paths = [path for kind in ("configs", "recipes") for path in bundled_folder(kind).rglob("*")]
    texts = [path.read_text("utf-8") for path in paths if path.suffix == ".yaml"]
    assert len(texts) > 100
    texts += ["a: [1, 1.5, 1e-3, yes, null, ~, 2026-01-01]", "a: >\n  b\n  c\nd: 'é 漢'", ""]
    for text in texts:
        assert yaml.load(text, Loader=loader) == yaml.safe_load(text)


def test_libyaml_is_used_where_it_is_installed():
    assert len(LOADERS) == 1 + yaml.__with_libyaml__


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    "text", ["b: {c: 1, c: 2}", "a: &x [1]\nb: *x", "a: !!python/name:os", "1: a", "[" * 99]
)
def test_every_loader_refuses_the_traps_of_yaml(loader: Any, text: str):
    with pytest.raises(yaml.constructor.ConstructorError):
        yaml.load(text, Loader=loader)


def test_an_empty_file_sets_nothing(tmp_path: Path):
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert read_yaml(tmp_path / "empty.yaml") == {}
