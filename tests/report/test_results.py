"""The table of the papers: means over seeds, marks, ratios; which folders are its rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.report import __main__ as report
from capsnmt.report.elements import Mark, Table, pieces
from capsnmt.report.result_section import results
from capsnmt.runs.find import find_runs
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.systems import group
from capsnmt.runs.translation import load_translation
from tests.report.finished_runs import write_log


def edit(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text("utf-8"))
    change(value)
    path.write_text(json.dumps(value), "utf-8")


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


def paths(folders: List[Path]) -> Tuple[List[Path], List[Path]]:
    """The runs that are found, finished and unfinished."""
    found = find_runs(folders)
    return [run.path for run in found.finished], [run.path for run in found.unfinished]


def table(folders: List[Path]) -> List[List[str]]:
    """The cells of the results, as text."""
    blocks = list(results(group([load_translation(RunFolder(folder)) for folder in folders])))
    found = next(block for block in blocks if isinstance(block, Table))
    return [
        ["".join(getattr(piece, "text", piece) for piece in pieces(cell)) for cell in row]
        for row in found.rows
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
    folders = [output / "baseline/seed-1", output / "em_routing/seed-1"]
    edit(folders[1] / "scores.json", lambda scores: scores["test"].update(baseline="other"))
    systems = group([load_translation(RunFolder(folder)) for folder in folders])
    blocks = list(results(systems))
    assert not any(isinstance(piece, Mark) for row in blocks[0].rows for cell in row
                   for piece in pieces(cell))  # fmt: skip
    assert "not tested (em_routing: " in str(blocks[-1])


@pytest.mark.parametrize("key", ["device", "device-name", "threads"])
def test_speeds_of_different_machines_have_no_ratio(output: Path, key: str) -> None:
    folders = [output / "baseline/seed-1", output / "em_routing/seed-1"]
    assert table(folders)[1][2] == "57/s (1.00×)"
    edit(folders[1] / "config.json", lambda config: config.update({key: "other"}))
    assert table(folders)[1][2] == "57/s"


def test_a_log_without_times_has_no_speed(output: Path) -> None:
    folders = [output / "baseline/seed-1", output / "em_routing/seed-1"]
    write_log(folders[1] / "train.log")
    log = (folders[1] / "train.log").read_text("utf-8").replace('"wps"', '"-"')
    (folders[1] / "train.log").write_text(log, "utf-8")
    assert [row[2] for row in table(folders)] == ["57/s", "–"]


def test_seeds_with_other_settings_have_no_mean(output: Path) -> None:
    folders = seeds(output, "baseline", [20.0, 22.0], [1, 1])
    edit(folders[1] / "config.json", lambda config: config["settings"]["train"].update(lr=0.5))
    with pytest.raises(ConfigurationError, match=r"seed-2: was trained with train\.lr 0\.5, but"):
        group([load_translation(RunFolder(folder)) for folder in folders])


def test_one_seed_twice_is_two_experiments(output: Path) -> None:
    copy = output / "again/baseline/seed-1"
    shutil.copytree(output / "baseline/seed-1", copy)
    systems = group(
        [load_translation(RunFolder(folder)) for folder in (output / "baseline/seed-1", copy)]
    )
    assert [system.name for system in systems] == [str(output / "baseline/seed-1"), str(copy)]


def test_a_folder_gives_its_rows_with_their_seeds_the_baseline_first(output: Path) -> None:
    (output / "baseline").rename(output / "z_baseline")
    edit(output / "em_routing/seed-1/config.json", lambda c: c.update(baseline="z_baseline"))
    for seed in (2, 10):
        shutil.copytree(output / "em_routing/seed-1", output / f"em_routing/seed-{seed}")
    (output / "em_routing/seed-2/scores.json").unlink()
    ours = [output / "em_routing" / f"seed-{seed}" for seed in (1, 10)]
    unfinished = [output / "em_routing/seed-2"]
    assert paths([output]) == ([output / "z_baseline/seed-1", *ours], unfinished)
    assert paths([output / "em_routing"]) == (ours, unfinished)
    assert paths([unfinished[0]]) == (unfinished, [])


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


def test_what_is_left_out_is_reported(output: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (output / "em_routing/seed-1/scores.json").unlink()
    capfd.readouterr()
    assert report.main([str(output), "--output", str(output / "report"), "--samples", "0"]) == 0
    assert capfd.readouterr().err == (
        f"warning: {output / 'em_routing/seed-1'} is not finished and is left out\n"
    )
