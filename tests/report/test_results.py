"""The table of the papers: means over seeds, marks, ratios; which folders are its rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from capsnmt.report import __main__ as report
from tests.report.finished_runs import edit, page, rows_of, write_log


def set_seed(folder: Path, seed: int, bleu: float, p_value: float) -> None:
    """Give a run another seed and other numbers."""
    edit(folder / "config.json", lambda config: config.update(seed=seed))

    def change(scores: Dict[str, Any]) -> None:
        system = scores["test"]["systems"][-1]
        system["bleu"]["score"] = bleu
        if "significance" in system:
            system["significance"]["bleu"]["p_value"] = p_value

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
    assert table(folders) == [
        ["baseline", "0.00M", "57/s", "22.00 ± 2.00", "–"],
        ["em_routing", "0.00M (+0)", "57/s (1.00×)", "24.00 ± 1.00", "+2.00"],
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
    assert rows[1][-1] == f"−1.00{mark}"


def test_a_test_against_another_baseline_marks_nothing_and_is_reported(output: Path) -> None:
    edit(output / "em_routing/seed-1/scores.json", lambda s: s["test"].update(baseline="other"))
    content = page([output / "baseline", output / "em_routing"])
    assert not set("†‡") & set("".join(rows_of(content, "system")[2]))
    assert "not tested (em\\_routing: " in content


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


def test_a_folder_without_a_finished_run_is_one_line(
    output: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (output / "baseline/seed-1/scores.json").unlink()
    (output / "nothing").mkdir()
    for folder, expected in (
        (output / "baseline", "none of its 1 run(s) is finished"),
        (output / "nothing", "config.json is missing"),
        (output / "absent", "there is no such folder"),
    ):
        capfd.readouterr()
        assert report.main([str(folder), "--output", str(output / "report")]) == 2
        error = capfd.readouterr().err
        assert (error.count("\n"), expected in error, str(folder) in error) == (1, True, True)
    assert not (output / "report").exists()
