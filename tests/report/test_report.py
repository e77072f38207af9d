"""A report over run folders in the launcher's formats has their numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from capsnmt.evaluation.metrics import METRICS
from capsnmt.machine import processor
from capsnmt.report import __main__ as report
from capsnmt.report.markdown import code, text
from capsnmt.report.sample_section import draw_numbers
from tests.report.finished_runs import (
    REFERENCES,
    SENTENCES,
    TRANSLATIONS,
    edit,
    page,
    rows_of,
    runs,
    write_generated,
    write_log,
    write_run,
)

FILES = [
    *("bleu_by_length-test.png", "bleu_by_length-test.svg", "learning_curve.png"),
    *("learning_curve.svg", "report.html", "report.md"),
]


def written(output: Path, *flags: str) -> str:
    """The page of both runs, written beside its figures."""
    folder = output / "report"
    assert report.main([*runs(output), "--output", str(folder), *flags]) == 0
    assert sorted(path.name for path in folder.iterdir()) == FILES
    return (folder / "report.md").read_text("utf-8")


def markdown(output: Path, samples: int = 0) -> str:
    """The page of both runs."""
    return page(runs(output), "--samples", str(samples))


@pytest.fixture(scope="module")
def content(finished: Path) -> str:
    """The page of the unchanged runs, with every sentence."""
    return markdown(finished, SENTENCES)


def scores_of(content: str) -> str:
    """The page from its scores on."""
    return content[content.index("## Scores") :]


def test_the_table_holds_the_scores_of_scores_json(finished: Path, content: str) -> None:
    rows = rows_of(scores_of(content), "system")
    assert rows[0][: 1 + len(METRICS)] == ["system", *METRICS.values()]
    for row, name in zip(rows[1:], ("baseline", "em_routing")):
        scores = json.loads((finished / name / "seed-1" / "scores.json").read_text("utf-8"))["test"]
        system = next(each for each in scores["systems"] if each["name"] == name)
        expected = [f"{system[metric]['score']:.2f}" for metric in METRICS]
        assert row[: 1 + len(METRICS)] == [text(name), *expected]
    # that of the baseline, which was not resampled, is the signature of both
    baseline = json.loads((finished / "baseline/seed-1/scores.json").read_text("utf-8"))["test"]
    for metric, label in METRICS.items():
        assert f"- {label}: `{baseline['systems'][0][metric]['signature']}`\n" in content


def test_the_baseline_has_no_p_value_and_the_other_has_that_of_scores_json(
    finished: Path, content: str
) -> None:
    scores = json.loads((finished / "em_routing/seed-1/scores.json").read_text("utf-8"))["test"]
    p_value = scores["systems"][1]["significance"]["bleu"]["p_value"]
    rows = rows_of(scores_of(content), "difference")
    assert {row[0] for row in rows[1:]} == {"em\\_routing − baseline"}
    delta = scores["systems"][1]["bleu"]["score"] - scores["systems"][0]["bleu"]["score"]
    assert rows[1][1:4] == ["BLEU", f"{delta:+.2f}".replace("-", "−"), f"{p_value:.3f}"]
    assert f"p = {p_value:.3f}" in content


def test_means_of_segment_scores_are_columns_and_differences(output: Path) -> None:
    for row, mean in zip(("baseline", "em_routing"), (0.75, 0.5)):
        path = output / row / "seed-1/scores.json"
        scores = json.loads(path.read_text("utf-8"))
        system = scores["test"]["systems"][-1]
        system["segment_means"] = {"COMET": {"score": mean, "signature": "nsegs:30|scores:given"}}
        tested = {"p_value": 0.02, "delta": -0.25}
        system.setdefault("significance", {})["COMET"] = tested
        path.write_text(json.dumps(scores), "utf-8")
    content = scores_of(markdown(output))
    header, *rows = rows_of(content, "system")
    column = header.index("COMET")
    assert [row[column] for row in rows] == ["0.7500", "0.5000"]
    rows = rows_of(content, "difference")
    comet = next(row for row in rows if row[1] == "COMET")
    assert comet[2:] == ["−0.2500", "0.020"]


def test_a_result_against_the_mechanism_is_reported_in_the_same_words(content: str) -> None:
    assert re.search(r"em\\_routing scores [\d.]+ BLEU, [\d.]+ below baseline", content)
    assert "One seed proves nothing" in content


def test_a_difference_that_rounds_to_nothing_is_none(output: Path) -> None:
    path = output / "em_routing/seed-1/scores.json"
    scores = json.loads(path.read_text("utf-8"))
    for system, score in zip(scores["test"]["systems"], (20.001, 20.004)):
        system["bleu"]["score"] = score
    path.write_text(json.dumps(scores), "utf-8")
    assert "the same as baseline (20.00)" in markdown(output)


def test_training_is_reported_by_the_log_of_the_final_model(content: str) -> None:
    rows = rows_of(content[content.index("## Training") :], "system")
    assert rows[1] == [
        "baseline",
        "`capsnmt_transformer_tiny`",
        "1",
        "6",
        "40 of 40",
        "0:01:05",
        "1.50",
        "7.250",
    ]
    assert "1 unreadable line(s)" in content


def test_the_row_that_a_run_was_initialised_from_is_reported(output: Path, content: str) -> None:
    assert "Initialised from" not in content
    initial = {"row": "baseline", "checkpoint": "a.pt", "checksum": "0", "updates": 8000}
    edit(output / "em_routing/seed-1/training.json", lambda t: t.update(initial=initial))
    assert "Initialised from baseline (8,000 updates): `a.pt`." in markdown(output)


def test_a_run_that_was_never_validated_is_reported_as_such(output: Path) -> None:
    write_log(output / "baseline/seed-1/train.log", valid=False)
    assert "baseline was never validated" in markdown(output)


def test_different_budgets_are_reported(output: Path, content: str) -> None:
    assert "Not the same budget" not in content
    with open(output / "baseline/seed-1/train.log", "a", encoding="utf-8") as log:
        log.write('{"loss": "6", "num_updates": "50", "wall": "60"}\n')
    assert "**Not the same budget:** the systems were trained for 40 and 50 updates" in markdown(
        output
    )


def retokenize(run: Path) -> None:
    def change(scores: Any) -> None:
        bleu = scores["test"]["systems"][-1]["bleu"]
        bleu["signature"] = bleu["signature"].replace("tok:13a", "tok:none")

    edit(run / "scores.json", change)


def rename_reference(run: Path) -> None:
    edit(run / "scores.json", lambda scores: scores["test"]["reference"].update(source="x"))


def change_dictionary(run: Path) -> None:
    edit(run / "training.json", lambda training: training["vocabulary"].update(x="1"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (retokenize, "signatures of BLEU on test"),
        (rename_reference, "references of test"),
        (change_dictionary, "dictionaries"),
    ],
)
def test_what_makes_systems_incomparable_is_reported(
    output: Path, content: str, change: Callable[[Path], None], what: str
) -> None:
    assert "Not comparable" not in content
    change(output / "em_routing/seed-1")
    assert f"**Not comparable:** the systems have different {what}." in markdown(output)


def test_samples_show_the_same_sentences_of_all_as_detokenised_text(content: str) -> None:
    rows = rows_of(content, "no.")
    assert rows[0] == ["no.", "source (en)", "reference (de)", "baseline", "em\\_routing"]
    assert [row[0] for row in rows[1:]] == [str(number) for number in range(SENTENCES)]
    assert rows[1][4] == "*(empty)*"
    assert rows[8] == [
        "7", "line 7 \\| with \\*marks\\*", "Zeile 7 ist schön und gut .", "Zeile 7 ist schön.",
        "Zeile 7 ist gut 漢字 \\|",
    ]  # fmt: skip


def test_the_sentences_shown_do_not_depend_on_what_was_translated(output: Path) -> None:
    shown = [row[0] for row in rows_of(markdown(output, 5), "no.")[1:]]
    for row in TRANSLATIONS:
        write_generated(output / row / "seed-1/generate-test.txt", REFERENCES)
    assert [row[0] for row in rows_of(markdown(output, 5), "no.")[1:]] == shown
    assert shown == [str(number) for number in draw_numbers(SENTENCES, 5)]


def test_no_samples_is_a_report_without_them(finished: Path) -> None:
    assert "Sample translations" not in markdown(finished, 0)


def test_the_page_holds_exact_commands_versions_machine_and_data(output: Path) -> None:
    content = written(output, "--title", "A <title>")
    assert content.startswith("# A \\<title\\>\n")
    for expected in (
        "train 'baseline'", "train 'em_routing'", "python -m capsnmt.corpora lines",
        "capsnmt-run --config lines/em_routing", "| torch | 2.13.0 |",
        "| sacrebleu | ", f"| `raw/test` | {SENTENCES} |", "Sentences about lines.",
        text("x86_64, 2 cores"), text(processor()),
    ):  # fmt: skip
        assert expected in content, expected


def test_the_same_runs_give_the_same_bytes(output: Path) -> None:
    def content() -> Dict[str, bytes]:
        written(output)
        return {path.name: path.read_bytes() for path in (output / "report").iterdir()}

    assert content() == content()


def test_data_that_moved_along_with_the_runs_is_found(output: Path) -> None:
    for row in TRANSLATIONS:
        edit(output / row / "seed-1/config.json", lambda config: config.update(data="gone/data"))
    assert "Sample translations" in markdown(output, 1)


def test_seeds_of_one_row_are_distinguished(output: Path) -> None:
    other = write_run(output, "baseline", seed=2)
    folder = output / "report"
    assert report.main([runs(output)[0], str(other), "--output", str(folder)]) == 0
    content = (folder / "report.md").read_text("utf-8")
    assert "| baseline, seed 1 |" in content
    assert "| baseline, seed 2 |" in content
    assert "One seed proves nothing" not in content


def test_a_fence_is_longer_than_any_in_the_code() -> None:
    assert code("````") == "`````\n````\n`````"
