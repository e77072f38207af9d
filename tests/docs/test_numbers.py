"""Numbers that one page quotes from the tables of another are theirs."""

from __future__ import annotations

import re
from typing import Dict, List

import yaml

from tests.docs.pages import REPO, rows

DOCS = REPO / "docs"
README = (REPO / "README.md").read_text(encoding="utf-8")
SPEED = (DOCS / "speed.md").read_text(encoding="utf-8")
MEASURED = (DOCS / "speed_measurements.md").read_text(encoding="utf-8")


def measured_rows() -> Dict[str, List[str]]:
    """Row -> the cells of its line in the tables of all rows, after the row."""
    found = (cells for cells in rows(MEASURED) if re.match(r"`\w+/\w+`$", cells[0]))
    return {cells[0].strip("`"): cells[1:] for cells in found}


def reported_parameters(row: str) -> float:
    """The parameters, in millions, that the row's paper reports for its baseline."""
    path = REPO / "configs" / row.partition("/")[0] / "baseline.yaml"
    return float(yaml.safe_load(path.read_text("utf-8"))["paper"]["li2019"]["parameters"][:-1])


def millions(added: str) -> float:
    """+4.2M -> 4.2, +2,304 -> 0.002304."""
    number = float(added.strip("+M").replace(",", ""))
    return number if added.endswith("M") else number / 1e6


def test_the_table_of_systems_is_that_of_the_measurements() -> None:
    section = SPEED.partition("## Every system")[2].partition("\n## ")[0]
    compared = [cells[1:] for cells in rows(section) if cells[1].startswith("`")]
    assert len(compared) > 10
    measured = measured_rows()
    for name, *found in compared:
        keys = (f"{dataset}/{name.strip('`')}" for dataset in ("wmt14_en_de", "wmt17_zh_en"))
        row = next(key for key in keys if key in measured)
        added, train, _, _, paper, decode, _, _, paper_decode, _, memory = measured[row]
        ours, stock = map(float, memory.split(" / "))
        baseline = reported_parameters(row)
        speeds = [
            f"{ratio.split(' ')[0]}x" + (f" ({reported}x)" if reported else "")
            for ratio, reported in ((train, paper), (decode, paper_decode))
        ]
        parameters = (baseline + millions(added)) / baseline
        assert found == [*speeds, f"{parameters:.2f}x", f"{ours / stock:.2f}x"], row


def test_complete_trainings_are_those_of_the_measurements() -> None:
    section = MEASURED.partition("## Complete trainings")[2].partition("\n## ")[0]
    measured = {f"{ratio}x" for ratio in re.findall(r"\| (\d\.\d\d) \(", section)}
    own = SPEED.partition("## Complete trainings")[2].partition("\n## ")[0]
    quoted = set(re.findall(r"\d\.\d\dx", own))
    assert quoted
    assert quoted <= measured
    ranges = re.findall(r"(\d\.\d\d)x (\(\d\.\d\d-\d\.\d\d\))", README)
    assert ranges
    assert all(f"{ratio} {extremes}" in MEASURED for ratio, extremes in ranges)


def test_the_scores_of_the_readme_are_in_the_results() -> None:
    results = (DOCS / "results.md").read_text(encoding="utf-8")
    scores = re.findall(r"\d+\.\d+", results)
    _, _, section = README.partition("## Results")
    quoted = re.findall(r"\d+\.\d+", section.partition("\nLogical")[0])
    assert len(quoted) > 8
    for score in quoted:
        places = len(score.partition(".")[2])
        rounded = (f"{float(found):.{places}f}" for found in scores)
        assert score in rounded, score
