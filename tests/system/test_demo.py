"""``scripts/demo.sh`` without its trainings: its flags, and the commands that it would run.

The demo itself trains for minutes: continuous integration runs it as the user does.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import List

import pytest
from capsnmt.launch.arguments import parse

from capsnmt.analysis import __main__ as analysis
from capsnmt.corpora.recipe import load_recipe
from capsnmt.launch import launch
from capsnmt.launch.run import Run
from capsnmt.report import __main__ as report
from tests.support import REPO

pytestmark = pytest.mark.system
PAIRS = ("en-de", "es-en", "en-vi", "zh-en")


def demo(*flags: str, cwd: Path = REPO) -> subprocess.CompletedProcess:
    """Run the script."""
    command = ["bash", str(REPO / "scripts/demo.sh"), *flags]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, encoding="utf-8"
    )


def commands(*flags: str, cwd: Path = REPO) -> List[List[str]]:
    """The commands of the demo, without the interpreter and ``-m``; the first in the background."""
    done = demo("--dry-run", *flags, cwd=cwd)
    assert done.returncode == 0, done.stderr
    first, second, wait, *others = done.stdout.splitlines()
    assert (first[-2:], wait) == (" &", "wait")
    return [shlex.split(line)[2:] for line in (first[:-2], second, *others)]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--pair", "de-en"], "--pair de-en: choose en-de, es-en, en-vi or zh-en"),
        (["--pair"], "--pair needs a value"),
        (["--minutes", "0"], "--minutes 0: give a whole number, 1 to 1000000"),
        (["--minutes", "1.5"], "--minutes 1.5: give a whole number"),
        (["--max-update", "4"], "--max-update 4: give a whole number, 5 or more"),
        (["--max-update", "9", "--minutes", "1"], "exclude each other"),
        (["--seed", "a[$(id)]"], "--seed a[$(id)]: give a whole number"),
        (["--output", "README.md"], "--output README.md: is a file"),
        (["--arch", "x"], "unknown flag '--arch'"),
    ],
)
def test_a_bad_flag_is_one_line_with_the_fix(flags: List[str], named: str) -> None:
    done = demo(*flags)
    assert done.returncode == 1
    assert done.stdout == ""
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_names_every_flag() -> None:
    done = demo("--help")
    assert done.returncode == 0
    for flag in ("--pair", "--minutes", "--max-update", "--output", "--seed", "--dry-run"):
        assert flag in done.stdout


def test_the_plan_does_not_depend_on_what_exists(tmp_path: Path) -> None:
    plan = commands("--output", str(tmp_path))
    for row in ("baseline", "em_routing"):
        folder = tmp_path / row / "seed-1"
        folder.mkdir(parents=True)
        for name in ("scores.json", "averaged.pt"):
            (folder / name).touch()
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis/analysis.html").touch()
    assert commands("--output", str(tmp_path)) == plan


def run_of(command: List[str]) -> Run:
    """The run of a command of the launcher."""
    device = launch.choose_device(1, None, None)
    (run,) = launch.make_runs(parse(command[1:]), device)
    return run


@pytest.mark.parametrize("pair", PAIRS)
def test_every_pair_of_the_corpus_is_trained_twice_with_the_same_budget(
    pair: str, tmp_path: Path
) -> None:
    assert load_recipe("catalogues", pair).pair == pair
    routed, baseline, compared, analysed, page = commands(
        *("--pair", pair, "--seed", "3"), cwd=tmp_path
    )
    assert compared == [*routed, "--baseline", "baseline"]
    experiments = []
    for command in (baseline, routed):
        assert command[0] == "capsnmt.launch"
        run = run_of(command)
        run.check_settings()
        experiment = run.experiment
        experiments.append(experiment)
        assert f"{experiment['data.source-lang']}-{experiment['data.target-lang']}" == pair
        assert run.seed == 3
    assert [each["arch"] for each in experiments] == [
        "capsnmt_transformer_tiny", "transformer_em_routing_tiny",
    ]  # fmt: skip
    assert {**experiments[0].settings, "arch": ""} == {**experiments[1].settings, "arch": ""}
    assert page[0] == "capsnmt.report"
    output = parse(baseline[1:]).output
    rows = [output / each.row / "seed-3" for each in experiments]
    assert report.build_parser().parse_args(page[1:]).runs == rows
    assert analysed[0] == "capsnmt.analysis"
    of_analysis = analysis.build_parser().parse_args(analysed[1:])
    assert of_analysis.systems == [str(row) for row in rows]
    assert of_analysis.output == output / "analysis"  # where the report looks for it
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("updates", [5, 99, 100, 1000])
def test_any_budget_leaves_the_checkpoints_that_are_averaged(updates: int) -> None:
    for command in commands("--max-update", str(updates))[:2]:
        experiment = run_of(command).experiment
        saved = updates // experiment["train.save-interval-updates"]
        assert saved >= experiment["average.last-updates"]
        assert experiment["train.max-update"] == updates


def test_minutes_are_a_number_of_updates_that_grows_with_them() -> None:
    budgets = [
        run_of(commands("--minutes", minutes)[0]).experiment["train.max-update"]
        for minutes in ("1", "3")
    ]
    assert budgets[1] == 3 * budgets[0]


def test_without_a_budget_it_is_that_of_the_configuration() -> None:
    for command in commands()[:2]:
        experiment = run_of(command).experiment
        bare = run_of(["", "--config", f"demo/{experiment.row}"]).experiment
        assert experiment.settings == bare.settings
