"""Printed values of a row are checked like settings, and are not settings of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from capsnmt.launch.config import Experiment, load, override

from capsnmt.cli import ConfigurationError

ENTRY = "paper: {li2019: {table: Table 2, name: EM, bleu: 28.28, parameters: +12.6M}}\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_printed_values_are_not_settings_and_not_inherited(tmp_path: Path) -> None:
    row = load(write(tmp_path, "row", f"arch: a\n{ENTRY}"))
    assert row.paper["li2019"]["parameters"] == "+12.6M"
    assert row.settings == {"arch": "a"}
    child = load(write(tmp_path, "child", "extends: row\n"))
    assert child.paper == {}
    assert child.settings == {"arch": "a"}


@pytest.mark.parametrize(
    ("paper", "named"),
    [
        ("3", "paper: 3: give a mapping"),
        ("{li2019: 3}", "paper.li2019: 3: give a mapping"),
        ("{li2019: {blue: 28}}", "paper.li2019.blue: unknown key: paper.li2019 may have table, "),
        ("{li2019: {bleu: high}}", "paper.li2019.bleu: 'high': give a number above 0"),
        ("{li2019: {parameters: 12.6}}", "paper.li2019.parameters: 12.6: give a count as printed"),
    ],
)
def test_a_bad_printed_value_is_one_line(paper: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(write(tmp_path, "row", f"arch: a\npaper: {paper}\n"))
    assert named in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_printed_value_cannot_be_set_for_a_run() -> None:
    with pytest.raises(ConfigurationError, match="unknown key"):
        override(Experiment("row"), ["paper.li2019.bleu=30"])
