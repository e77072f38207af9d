"""The table in docs/parameters.md is the script's, and the script replaces nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsnmt.errors import ConfigurationError
from scripts import parameter_table
from scripts.rows import ROWS
from tests.support import REPO

PAGE = f"before\n{parameter_table.START}\nold\n{parameter_table.END}\nafter\n"


def test_the_table_in_the_documentation_is_the_one_that_the_script_makes() -> None:
    text = (REPO / "docs" / "parameters.md").read_text(encoding="utf-8")
    assert parameter_table.replace_table(text, "parameters.md") == text, (
        "run scripts/parameter_table.py --write docs/parameters.md"
    )


def test_every_row_of_a_paper_is_one_line_with_its_count_and_flags() -> None:
    lines = parameter_table.table().splitlines()
    for row in ROWS.values():
        (line,) = [line for line in lines if line.startswith(f"| {row.name} |")] or [""]
        assert bool(line) == bool(row.paper)
        assert f" {row.extra:+,}" in line or not row.paper
        assert row.criterion in line


def test_every_count_that_is_not_the_printed_one_has_its_reason_below() -> None:
    table = parameter_table.table()
    for row in ROWS.values():
        assert row.mismatch in table


def test_writing_replaces_what_stands_between_the_markers_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    for _ in range(2):  # the second time changes nothing
        parameter_table.main(["--write", str(page)])
        before, table, after = page.read_text(encoding="utf-8").partition(parameter_table.table())
        assert before == f"before\n{parameter_table.START}\n\n"
        assert table
        assert after == f"\n\n{parameter_table.END}\nafter\n"
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize(
    "text",
    [
        "no marker\n",
        f"{parameter_table.START}\n",
        f"{parameter_table.END}\n{parameter_table.START}\n",
        PAGE + PAGE,
    ],
)
def test_a_file_without_its_markers_is_one_line_and_stays_as_it_is(
    text: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="the table's place is not marked") as error:
        parameter_table.main(["--write", str(page)])
    assert len(str(error.value).splitlines()) == 1
    assert page.read_text(encoding="utf-8") == text


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--write: .*missing\.md: .*No such file"):
        parameter_table.main(["--write", str(tmp_path / "missing.md")])
