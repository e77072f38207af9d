"""What a comparison could have shown, in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

from capsnmt.evaluation.bleu_statistics import bleu_statistics
from capsnmt.evaluation.power import SmallestDifference, smallest_difference
from capsnmt.report.contents import parts
from capsnmt.report.elements import Paragraph, Table
from capsnmt.report.power_section import power
from tests.report.finished_runs import REFERENCES, TRANSLATIONS


def rows(elements: List[Any]) -> List[List[str]]:
    """Return the cells of the only table."""
    (table,) = (each for each in elements if isinstance(each, Table) and "smallest" in each.caption)
    return [list(row) for row in table.rows]


def test_the_report_has_the_smallest_differences_of_its_outputs(finished: Path) -> None:
    folders = [finished / row / "seed-1" for row in ("baseline", "em_routing")]
    (part,) = parts(folders, 0, finished)
    one, other = (bleu_statistics("de", TRANSLATIONS[row], REFERENCES) for row in TRANSLATIONS)
    expected = smallest_difference([one], [other]).test_set
    assert expected > 0
    assert rows(list(part.sections["Results"])) == [
        ["test", "em_routing", f"{expected:.2f}", "–", "–"]
    ]


def test_it_says_what_one_seed_cannot_show() -> None:
    several = [SmallestDifference(0.5, 1.25, 1.4), SmallestDifference(0.5, 1.0, 1.1)]
    elements = list(power(["base", "one", "other"], {"test": several}))
    assert rows(elements) == [
        ["test", "one", "0.50", "1.25", "1.40"],
        ["test", "other", "0.50", "1.00", "1.10"],
    ]
    assert "trained once" not in str(elements[-1])
    once = list(power(["base", "one"], {"test": [SmallestDifference(0.5, None, None)]}))
    assert isinstance(once[-1], Paragraph)
    assert "trained once" in str(once[-1])


def test_one_system_has_no_difference() -> None:
    assert list(power(["base"], {"test": []})) == []
