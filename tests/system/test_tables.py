"""The documentation has the tables that the script makes, and the script replaces only these."""

from pathlib import Path

import pytest

from capsnmt.cli import ConfigurationError
from scripts import result_tables, tables

START, END = "<!-- settings: made by scripts/tables.py -->\n", "<!-- end -->\n"


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.stem)
def test_a_page_of_the_documentation_has_the_tables_that_the_script_makes(page: Path) -> None:
    assert tables.with_tables(page) == page.read_text("utf-8"), "run scripts/tables.py"


def test_a_seed_without_its_baseline_has_costs_and_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = result_tables.REPO / "results" / "multi30k_lowercase"
    here = tmp_path / "results" / kept.name
    for row, seeds in (("baseline", (1,)), ("em_routing", (1, 2)), ("mlmha", (2,))):
        (here / row).mkdir(parents=True)
        for seed in seeds:
            (here / row / f"seed-{seed}").symlink_to(kept / row / f"seed-{seed}")
    monkeypatch.setattr(result_tables, "REPO", tmp_path)
    cells = {line.split(" | ")[0]: line.split(" | ") for line in result_tables.costs().splitlines()}
    assert [cells[f"| `{row}`"][1] for row in ("em_routing", "mlmha")] == ["2", "1"]
    assert "±" in cells["| `em_routing`"][4]
    assert "±" not in cells["| `em_routing`"][5]
    assert not cells["| `mlmha`"][5].strip()


def test_other_texts_have_tables_once_a_row_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = result_tables.REPO / "results" / result_tables.MAIN
    monkeypatch.setattr(result_tables, "REPO", tmp_path)
    other = tmp_path / "results" / "other"
    other.mkdir(parents=True)
    (other.parent / kept.name).symlink_to(kept)
    (other / "baseline").symlink_to(kept / "baseline")
    (other / "comparisons.json").write_text("{}", "utf-8")
    assert result_tables.other_texts() == ""
    (other / "comparisons.json").unlink()
    for name in ("mlmha", "comparisons.json"):
        (other / name).symlink_to(kept / name)
    found = result_tables.other_texts()
    assert [x for x in found.splitlines() if x.startswith("#")] == ["### other"]
    assert result_tables.differences_to_baseline() in found
    mean = [line for line in result_tables.finished().splitlines() if "`mlmha` | 1, 2, 3" in line]
    assert {*mean} <= {*found.splitlines()}
    assert "| `mlmha` | 3 | 3,359,232 |  |" in found  # its speed is that of another text


def test_only_what_is_between_the_markers_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setitem(tables.PAGES, page, [tables.settings])
    page.write_text(f"before\n{START}old\n{END}after\n", "utf-8")
    assert tables.with_tables(page) == f"before\n{START}{tables.settings()}{END}after\n"
    for wrong in (f"before\n{START}old\nafter\n", f"{END}{START}", ""):
        page.write_text(wrong, "utf-8")
        with pytest.raises(ConfigurationError, match=r"^.*place of settings is not marked.*\Z"):
            tables.with_tables(page)
