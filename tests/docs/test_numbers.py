"""Numbers that one page quotes from the tables of another are theirs."""

import re
from pathlib import Path
from typing import Dict, List

import pytest

from scripts import parameter_formulas
from tests.docs.pages import PAGES, REPO, name, numbers, prose, rows, section

DOCS = REPO / "docs"
README = (REPO / "README.md").read_text(encoding="utf-8")
SPEED = (DOCS / "speed.md").read_text(encoding="utf-8")
MEASUREMENTS = DOCS / "speed_measurements.md"
MEASURED = MEASUREMENTS.read_text(encoding="utf-8")


def measured_rows() -> Dict[str, List[str]]:
    """Row -> the cells of its line in the tables of all rows, after the row."""
    found = (cells for cells in rows(MEASURED) if re.match(r"`\w+/\w+`$", cells[0]))
    return {cells[0].strip("`"): cells[1:] for cells in found}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_number_in_a_link_is_in_the_section_that_the_link_names(page: Path) -> None:
    for label, target, anchor in re.findall(r"\[([^\]]*)\]\(([\w./]*)#([\w-]+)\)", prose(page)):
        there = section((page.parent / target).resolve() if target else page, anchor)
        for number in re.findall(r"\d+\.\d+", label):
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", there), (number, target)


def parameter_table(page: str) -> Dict[str, List[str]]:
    """What the rows of a mechanism's table of parameters name -> the other cells."""
    text = section(DOCS / f"{page}.md", "parameters")
    return {kind: cells[1:] for cells in rows(text) for kind in re.findall(r"`([^`]+)`", cells[0])}


def test_the_parameters_of_head_aggregation_are_the_formulas() -> None:
    table = parameter_table("head_aggregation")
    assert len(table) == 6
    for kind, (_, one, every) in table.items():
        flags = {
            "head-aggregation": kind,
            "head-aggregation-attention": "enc-self,enc-dec,dec-self",
        }
        exact = parameter_formulas.head_aggregation(flags, "base")
        assert (numbers(one), numbers(every)) == ([exact // 18], [exact])


def test_the_parameters_of_layer_aggregation_are_the_formulas() -> None:
    text = section(DOCS / "layer_aggregation.md", "parameters")
    table = [cells for cells in rows(text) if cells[0].startswith("`")]
    assert len(table) == 11
    for modes, _, exact, _ in table:
        for mode in re.findall(r"`([^`]+)`", modes):
            sides = ["encoder", "decoder"] if ";" in exact else ["encoder"]
            found = []
            for side in sides:
                flags = {"layer-aggregation": mode, "layer-aggregation-side": side}
                flags |= {f"{side}-normalize-before": True} if "pre-norm" in modes else {}
                aggregated = parameter_formulas.layer_aggregation(flags, "base")
                found.append(aggregated + parameter_formulas.layer_connection(flags, "base"))
            assert numbers(exact) == found, mode


def test_the_parameters_of_multi_layer_attention_are_the_formulas() -> None:
    table = parameter_table("multi_layer_attention")
    assert len(table) == 4
    for variant, (_, exact, _) in table.items():
        flags = [{"mlmha": variant, "mlmha-sources": n} for n in range(2, 7)]
        assert numbers(exact) == [
            parameter_formulas.multi_layer_attention(each, "base") for each in flags
        ]


def millions(added: str) -> float:
    """+4.2M -> 4.2, +2,304 -> 0.002304."""
    (number,) = numbers(added)
    return number if added.endswith("M") else number / 1e6


def test_the_table_of_systems_is_that_of_the_measurements() -> None:
    table = rows(section(DOCS / "speed.md", "every-system"))
    compared = [cells[1:] for cells in table if cells[-1].startswith("`")]
    assert len(compared) > 10
    measured = measured_rows()
    of_search = {cells[0]: cells[1] for cells in rows(section(MEASUREMENTS, "every-system"))}
    (stock_parameters,) = map(float, re.findall(r"stock's (\d+\.\d)M", SPEED))
    for *found, system in compared:
        keys = (f"{dataset}/{system.strip('`')}" for dataset in ("wmt14_en_de", "wmt17_zh_en"))
        row = next(key for key in keys if key in measured)
        added, train, _, _, paper, _, _, _, paper_decode, _, memory = measured[row]
        ours, stock = map(float, memory.split(" / "))
        speeds = [
            f"{ratio.split(' ')[0]}x" + (f" ({reported}x)" if reported else "")
            for ratio, reported in ((train, paper), (of_search[system], paper_decode))
        ]
        parameters = (stock_parameters + millions(added)) / stock_parameters
        assert found == [*speeds, f"{parameters:.2f}x", f"{ours / stock:.2f}x"], row


def test_the_trainings_of_the_readme_are_those_of_the_measurements() -> None:
    ranges = re.findall(r"(\d\.\d\d)x (\(\d\.\d\d-\d\.\d\d\))", README)
    assert ranges
    assert all(f"{ratio} {extremes}" in MEASURED for ratio, extremes in ranges)


def test_the_share_of_routing_is_that_of_the_measurements() -> None:
    """Of the training time: the difference between a row and its floor."""
    shares = {
        row: 100 * (1 - float(cells[1].split()[0]) / float(cells[2].split()[0]))
        for row, cells in measured_rows().items()
        if cells[2] and not row.endswith(("_later", "inverted", "inverted_layers"))
    }
    stated = re.search(
        r"takes (\d+) to (\d+)% .* layers, (\d+)% in two\s+attentions, (\d+)% in all", SPEED
    )
    assert stated
    several = {row: share for row, share in shares.items() if re.search("all$|self_enc_dec", row)}
    one = [round(share) for row, share in shares.items() if row not in several]
    two, three = (round(shares[f"wmt14_en_de/li2019_em_{x}"]) for x in ("enc_self_enc_dec", "all"))
    assert [*map(int, stated.groups())] == [min(one), max(one), two, three]
