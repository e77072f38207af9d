"""The documentation has the tables that the script makes, and the script replaces only these."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsnmt.cli import ConfigurationError
from scripts import tables

START, END = tables.markers("parameters")
PAGE = f"before\n{START}\nold\n{END}\nafter\n"


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_a_page_of_the_documentation_has_the_tables_that_the_script_makes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.replace_tables(text, page.name) == text, "run scripts/tables.py --write"


def test_every_table_is_in_the_documentation() -> None:
    lines = [line for page in tables.PAGES for line in page.read_text("utf-8").splitlines()]
    for name in tables.TABLES:
        assert [lines.count(marker) for marker in tables.markers(name)] == [1, 1]


def test_writing_replaces_what_is_between_the_markers_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    for _ in range(2):  # the second time changes nothing
        tables.main(["--write", str(page)])
        before, table, after = page.read_text(encoding="utf-8").partition(tables.parameters())
        assert before == f"before\n{START}\n\n"
        assert table
        assert after == f"\n\n{END}\nafter\n"
    assert list(tmp_path.iterdir()) == [page]
    page.write_text(f"{END}\n{START}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="the place of the table is not marked") as error:
        tables.main(["--write", str(page)])
    assert len(str(error.value).splitlines()) == 1
    assert page.read_text(encoding="utf-8") == f"{END}\n{START}\n"
