"""A report over run folders in the launcher's formats has their numbers."""

from __future__ import annotations

import html
import json
import re
import shutil
from math import sqrt
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import pytest
from scipy.stats import t

from capsnmt.evaluation.scores import METRICS
from capsnmt.report import __main__ as report
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
)

RUN = "em_routing/seed-1"
FILES = [
    *("bleu_by_length-test.png", "bleu_by_length-test.svg", "learning_curve.png"),
    *("learning_curve.svg", "report.html", "report.md", "scores.csv"),
]


def page_of(output: Path, *flags: str) -> str:
    """The page of both runs, written beside its figures."""
    folder = output / "report"
    assert report.main([*runs(output), "--output", str(folder), *flags]) == 0
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == FILES
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


def read(output: Path, row: str) -> Any:
    """The scores of a run on its test set."""
    return json.loads((output / row / "seed-1/scores.json").read_text("utf-8"))["test"]


def test_the_scores_are_those_of_scores_json(finished: Path, content: str) -> None:
    rows = rows_of(scores_of(content), "system")
    assert rows[0][: 1 + len(METRICS)] == ["system", *METRICS.values()]
    for row, name in zip(rows[1:], ("baseline", "em_routing")):
        system = next(s for s in read(finished, name)["systems"] if s["name"] == name)
        expected = [f"{system['outputs'][0]['scores'][metric]['score']:.2f}" for metric in METRICS]
        assert row[: 1 + len(METRICS)] == [name.replace("_", "\\_"), *expected]
    (baseline,) = read(finished, "baseline")["systems"][0]["outputs"]
    for metric, label in METRICS.items():
        signature = baseline["scores"][metric]["signature"]
        assert f"- {label}: `{signature}`\n" in content


def test_the_other_system_has_the_p_value_of_scores_json(finished: Path, content: str) -> None:
    systems = read(finished, "em_routing")["systems"]
    base, routed = (system["outputs"][0]["scores"] for system in systems)
    header, *rows = rows_of(scores_of(content), "difference")
    assert [row[0] for row in rows] == ["em\\_routing − baseline"]
    for metric, label in METRICS.items():
        delta = f"{routed[metric]['score'] - base[metric]['score']:+.2f}".replace("-", "−")
        at = header.index(f"Δ {label}")
        assert rows[0][at : at + 2] == [delta, f"{routed[metric]['p_value']:.3f}"]
    assert "One seed proves nothing" in content


def test_means_of_segment_scores_are_columns_and_differences(output: Path) -> None:
    for row, mean in zip(("baseline", "em_routing"), (0.75, 0.5)):

        def change(scores: Any, mean: float = mean) -> None:
            (output,) = scores["test"]["systems"][-1]["outputs"]
            given = {"score": mean, "signature": "nsegs:30|scores:given"}
            output["scores"]["COMET"] = {**given, "p_value": 0.02, "delta": -0.25}

        edit(output / row / "seed-1/scores.json", change)
    content = scores_of(markdown(output))
    header, *rows = rows_of(content, "system")
    assert [row[header.index("COMET")] for row in rows] == ["0.7500", "0.5000"]
    header, row = rows_of(content, "difference")
    assert row[header.index("Δ COMET") :][:2] == ["−0.2500", "0.020"]


def test_training_is_reported_by_the_log_of_the_final_model(content: str) -> None:
    rows = rows_of(content[content.index("## Training") :], "system")
    assert rows[1] == [
        *("baseline", "`capsnmt_transformer_tiny`", "1", "6", "40 of 40", "0:01:05", "1.50"),
        "7.250",
    ]


def rename(output: Path) -> None:
    edit(output / RUN / "scores.json", lambda s: s["test"].update(reference="x"))


def retokenize(output: Path) -> None:
    def change(scores: Any) -> None:
        bleu = scores["test"]["systems"][-1]["outputs"][0]["scores"]["bleu"]
        bleu["signature"] = bleu["signature"].replace("tok:13a", "tok:none")

    edit(output / RUN / "scores.json", change)


def train_longer(output: Path) -> None:
    with open(output / "baseline/seed-1/train.log", "a", encoding="utf-8") as log:
        log.write('{"loss": "6", "num_updates": "50", "wall": "60"}\n')


INITIAL = {"row": "baseline", "checkpoint": "a.pt", "checksum": "0", "updates": 8000}
CHANGES: Dict[str, Callable[[Path], Any]] = {
    "em\\_routing: initialised from baseline (8,000 updates): `a.pt`.": lambda output: edit(
        output / RUN / "training.json", lambda training: training.update(initial=INITIAL)
    ),
    "**Not the same budget:** the systems were trained for 40 and 50 updates": train_longer,
    "**Not comparable:** the systems have different signatures of BLEU on test.": retokenize,
    "**Not comparable:** the systems have different references of test.": rename,
    "**Not comparable:** the systems have different dictionaries.": lambda output: edit(
        output / RUN / "training.json", lambda training: training["vocabulary"].update(x="1")
    ),
    "not tested (em\\_routing: ": lambda output: edit(
        output / RUN / "scores.json", lambda scores: scores["test"]["test"].update(baseline="x")
    ),
}


@pytest.mark.parametrize("expected", CHANGES)
def test_what_a_reader_must_know_is_said_where_it_is_so(
    output: Path, content: str, expected: str
) -> None:
    assert expected not in content
    CHANGES[expected](output)
    changed = markdown(output)
    assert expected in changed
    if "not tested" in expected:
        assert not set("†‡") & set("".join(rows_of(changed, "system")[2]))


def numbers_of(content: str) -> List[int]:
    """The positions of the sample translations."""
    return [int(number) for number in re.findall(r"(?m)^\| (\d+), source", content)]


def test_samples_show_the_same_sentences_of_all_as_detokenised_text(content: str) -> None:
    assert numbers_of(content) == list(range(SENTENCES))
    assert "| em\\_routing | *(empty)* |" in content
    assert rows_of(content, "7, source (en)") == [
        ["7, source (en)", "line 7 \\| with \\*marks\\*"],
        ["reference (de)", "Zeile 7 ist schön und gut ."],
        ["baseline", "Zeile 7 ist schön."],
        ["em\\_routing", "Zeile 7 ist gut 漢字 \\|"],
    ]


def test_the_sentences_shown_do_not_depend_on_what_was_translated(output: Path) -> None:
    shown = numbers_of(markdown(output, 5))
    for row in TRANSLATIONS:
        write_generated(output / row / "seed-1/generate-test.txt", REFERENCES)
    assert numbers_of(markdown(output, 5)) == shown
    assert len(shown) == 5
    assert "Sample translations" not in markdown(output, 0)


def test_the_page_holds_exact_commands_versions_machine_and_data(output: Path) -> None:
    (output / "report/analysis").mkdir(parents=True)
    (output / "report/analysis/analysis.html").write_text("the page", "utf-8")
    edit(output / RUN / "training.json", lambda training: training["versions"].update(torch="3"))
    content = page_of(output, "--title", "A <title>")
    assert content.startswith("# A &lt;title&gt;\n")
    for expected in (
        "train 'baseline'", "train 'em_routing'", "python -m capsnmt.corpora lines",
        "capsnmt-run --config lines/em_routing", "| torch | 2.13.0, 3 |",
        "| sacrebleu | ", f"| `raw/test` | {SENTENCES} |", "Sentences about lines.",
        "x86\\_64, 2 cores", "(analysis/analysis.html)",
    ):  # fmt: skip
        assert expected in content, expected


def test_hostile_records_are_text(output: Path) -> None:
    evil = "</code></summary><script>alert(1)</script>`` | *b*"
    run = output / RUN
    write_generated(run / "generate-test.txt", [evil, *TRANSLATIONS["em_routing"][1:]])
    edit(run / "config.json", lambda config: config.update(command=["x", evil]))
    edit(run / "training.json", lambda training: training.update({"device-name": evil}))
    (run / "commands.sh").write_text(evil, "utf-8")
    page_of(output, "--title", evil, "--samples", str(SENTENCES))
    content = (output / "report/report.html").read_text("utf-8")
    assert "<script" not in content
    shown = html.unescape(re.sub(r"<[^>]*>", "", content))
    assert shown.count(evil) == 7  # the title twice, a device twice


def test_data_that_moved_along_with_the_runs_is_found(output: Path) -> None:
    for row in TRANSLATIONS:
        edit(output / row / "seed-1/config.json", lambda config: config.update(data="gone/data"))
    assert "Sample translations" in markdown(output, 1)


def set_seed(folder: Path, seed: int, bleu: float, p_value: float) -> None:
    """Give a run another seed and other numbers."""
    edit(folder / "config.json", lambda config: config.update(seed=seed))

    def change(scores: Dict[str, Any]) -> None:
        score = scores["test"]["systems"][-1]["outputs"][0]["scores"]["bleu"]
        score["score"] = bleu
        if "p_value" in score:
            score["p_value"] = p_value

    edit(folder / "scores.json", change)


def seeds(output: Path, row: str, bleu: List[float], p_values: List[float]) -> List[Path]:
    """A row trained with several seeds."""
    folders = [output / row / f"seed-{seed}" for seed in range(1, len(bleu) + 1)]
    for folder in folders[1:]:
        shutil.copytree(folders[0], folder)
    for seed, (folder, *numbers) in enumerate(zip(folders, bleu, p_values), 1):
        set_seed(folder, seed, *numbers)
    return folders


def table(folders: Sequence[Path]) -> List[List[str]]:
    """The cells of the results."""
    return [[cell.replace("\\_", "_") for cell in row] for row in rows_of(page(folders), "system")][
        1:
    ]


def test_seeds_are_one_row_with_mean_deviation_and_difference(output: Path) -> None:
    folders = seeds(output, "baseline", [20.0, 22.0, 24.0], [1, 1, 1])
    folders += seeds(output, "em_routing", [23.0, 24.0, 25.0], [0.2, 0.001, 0.001])
    # Welch: the standard errors are 2 and 1 over the root of 3
    error, one, other = sqrt(5 / 3), 4 / 3, 1 / 3
    reach = error * t.ppf(0.975, (one + other) ** 2 / (one**2 / 2 + other**2 / 2))
    assert table(folders) == [
        ["baseline", "0.00M", "57/s", "22.00 ± 2.00", "–", "–"],
        [
            *("em_routing", "0.00M (+0)", "57/s (1.00×)", "24.00 ± 1.00", "+2.00"),
            f"−{reach - 2:.2f} to +{reach + 2:.2f}",
        ],
    ]


@pytest.mark.parametrize(
    ("p_values", "mark"),
    [([0.04, 0.001], "†"), ([0.009, 0.001], "‡"), ([0.05, 0.001], ""), ([0.001], "‡")],
)
def test_a_difference_is_marked_by_its_largest_p_value(
    output: Path, p_values: List[float], mark: str
) -> None:
    base = seeds(output, "baseline", [20.0] * len(p_values), [1] * len(p_values))
    rows = table([*base, *seeds(output, "em_routing", [19.0] * len(p_values), p_values)])
    assert rows[1][4] == f"−1.00{mark}"


@pytest.mark.parametrize("key", ["device", "device-name", "threads"])
def test_speeds_of_different_machines_have_no_ratio(output: Path, key: str) -> None:
    run = output / "em_routing/seed-1"
    assert table([output])[1][2] == "57/s (1.00×)"
    if key == "threads":
        edit(run / "config.json", lambda config: config["device"].update(threads=2))
    else:
        edit(run / "training.json", lambda training: training.update({key: "other"}))
    assert table([output])[1][2] == "57/s"


def test_a_log_without_times_has_no_speed(output: Path) -> None:
    folders = [output / "baseline/seed-1", output / "em_routing/seed-1"]
    write_log(folders[1] / "train.log")
    log = (folders[1] / "train.log").read_text("utf-8").replace('"wps"', '"-"')
    (folders[1] / "train.log").write_text(log, "utf-8")
    assert [row[2] for row in table(folders)] == ["57/s", "–"]


def test_seeds_with_other_settings_have_no_mean(
    output: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = seeds(output, "baseline", [20.0, 22.0], [1, 1])[1]
    edit(folder / "config.json", lambda config: config["settings"]["train"].update(lr=0.5))
    assert report.main([str(output / "baseline"), "--output", str(output / "report")]) == 2
    assert f"{folder}: was trained with train.lr 0.5, but" in capfd.readouterr().err


def test_one_seed_twice_is_two_experiments(output: Path) -> None:
    first, copy = output / "baseline/seed-1", output / "again/baseline/seed-1"
    shutil.copytree(first, copy)
    assert [row[0] for row in table([first, copy])] == [str(first), str(copy)]


def test_a_folder_gives_its_rows_with_their_seeds_the_baseline_first(
    output: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in output.glob("*/seed-1/*.json"):
        text = path.read_text("utf-8").replace(': "baseline"', ': "z"')
        path.write_text(text, "utf-8")
    for seed in (2, 10):
        folder = output / f"em_routing/seed-{seed}"
        shutil.copytree(output / "em_routing/seed-1", folder)
        edit(folder / "config.json", lambda config, seed=seed: config.update(seed=seed))
    (output / "em_routing/seed-2/scores.json").unlink()
    trained = page([output]).partition("## Training")[2]
    names = [row[0].replace("\\_", "_") for row in rows_of(trained, "system")]
    assert names == ["system", "z, seed 1", "em_routing, seed 1", "em_routing, seed 10"]
    left_out = f"warning: {output / 'em_routing/seed-2'} is not finished and is left out\n"
    assert capfd.readouterr().err == left_out
