"""The checklist of Marie et al. 2021 says "yes" only to what a record shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, List

import pytest

from capsnmt.report.checklist_section import checklist
from capsnmt.report.elements import Listing, Paragraph, pieces
from capsnmt.runs.finished import FinishedRun

ROWS = ("baseline", "em_routing")


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    value = json.loads(path.read_text("utf-8"))
    change(value)
    path.write_text(json.dumps(value), "utf-8")


def answers(output: Path, rows: tuple = ROWS) -> List[List[str]]:
    """Answer and evidence of each question."""
    runs = [FinishedRun(output / row / "seed-1") for row in rows]
    note, listing = checklist(runs, list(rows))
    assert isinstance(note, Paragraph)
    assert isinstance(listing, Listing)
    found = [[answer.text, text[2:-1]] for _, answer, text in map(pieces, listing.items)]
    assert f"yes to {sum(row[0] == 'yes' for row in found)} of 4 questions" in str(note.text)
    return found


def test_what_the_records_show_is_yes_and_the_rest_no(output: Path) -> None:
    better, tested, computed, same = answers(output)
    assert better == ["yes", "chrF2, chrF2++; no human evaluation is recorded"]
    assert tested[0] == "yes"
    assert "paired bootstrap resampling (Koehn 2004), 20 resamples, seed 12345" in tested[1]
    assert computed[0] == "yes"
    assert "BLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in computed[1]
    # the records of these runs have no checksums
    assert same[0] == "no"
    assert "no checksums" in same[1]


def set_vocabulary(output: Path, *checksums: str) -> None:
    for row, checksum in zip(ROWS, checksums):
        vocabulary = {"dict.en.txt": checksum, "dict.de.txt": "0"}
        path = output / row / "seed-1" / "config.json"
        edit(path, lambda config, own=vocabulary: config.update(vocabulary=own))


def test_the_same_data_are_those_of_one_folder_and_one_vocabulary(output: Path) -> None:
    set_vocabulary(output, "1", "1")
    assert answers(output)[3] == [
        "yes",
        "one folder of prepared data; equal checksums of dict.de.txt, dict.en.txt",
    ]
    other = output / "elsewhere"
    (output / "data").rename(other)
    (output / "data").mkdir()
    edit(output / "em_routing/seed-1/config.json", lambda config: config.update(data=str(other)))
    assert answers(output)[3] == ["no", "em_routing and baseline have data of different folders"]
    set_vocabulary(output, "1", "2")
    assert answers(output)[3] == ["no", "em_routing and baseline have different dictionaries"]


SCORES = "em_routing/seed-1/scores.json"


def retokenize(scores: Any) -> None:
    system = scores["test"]["systems"][-1]
    system["bleu"]["signature"] = system["bleu"]["signature"].replace("tok:13a", "tok:none")


@pytest.mark.parametrize(
    ("change", "question", "evidence"),
    [
        (lambda scores: scores["test"].update(baseline="other"), 1, "em_routing on test"),
        (lambda scores: scores["test"].update(baseline=None), 1, "not tested against baseline"),
        (retokenize, 2, "the signatures of BLEU on test differ"),
        (lambda scores: scores["test"]["reference"].update(source="x"), 2, "different files"),
        (lambda scores: scores["test"]["reference"].update(raw=False), 2, "not the raw text"),
    ],
)
def test_a_record_that_lacks_something_is_no(
    output: Path, change: Callable, question: int, evidence: str
) -> None:
    edit(output / SCORES, change)
    answer = answers(output)[question]
    assert answer[0] == "no"
    assert evidence in answer[1]


def test_one_system_is_compared_with_nothing(output: Path) -> None:
    found = answers(output, ("baseline",))
    assert [answer[0] for answer in found] == ["yes", "does not apply", "yes", "does not apply"]
