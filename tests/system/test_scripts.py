"""The scripts: the commands that they print would start.

Their plans and refusals are recorded: tests/frozen/golden/plan_scripts.txt and refusals.txt.
"""

import shlex
import subprocess
from collections import Counter
from pathlib import Path
from typing import List

import pytest

from capsnmt.analysis import __main__ as analysis
from capsnmt.corpora import __main__ as preparation
from capsnmt.launch import __main__ as launcher
from capsnmt.launch import plan
from capsnmt.launch.run import Run
from capsnmt.report import __main__ as report
from capsnmt.runs.records import Device
from tests.commands import command, is_refusal, succeed
from tests.frozen.cases.plans import SCRIPTS
from tests.interpreter import ran
from tests.support import REPO

pytestmark = pytest.mark.system
PARSERS = {"capsnmt.corpora": preparation, "capsnmt.analysis": analysis, "capsnmt.report": report}


def script(name: str, *flags: object, **variables: str) -> subprocess.CompletedProcess:
    return ran(["bash", REPO / "scripts" / name, *flags], **variables)


def commands(name: str, *flags: object) -> List[List[str]]:
    """The words of every planned ``python -m``, from the module on."""
    done = script(name, *flags, "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace(" &\n", "\n").splitlines()
    return [shlex.split(line)[2:] for line in lines if " -m " in line]


def planned(arguments: List[str]) -> List[Run]:
    """The runs of a start of the launcher; their settings are checked."""
    runs = plan.runs_of(launcher.parse(arguments), Device())
    plan.check(runs)
    return runs


@pytest.mark.parametrize("line", [x for x in SCRIPTS if "benchmark" not in x])
def test_the_commands_accept_what_a_script_starts(line: str) -> None:
    name, *flags = line.split()
    rows: Counter = Counter()
    for module, *words in commands(name, *flags):
        if module == "capsnmt.launch":
            for run in planned(words):
                rows[run.settings.dataset, run.config.row] += 1
        elif module in PARSERS:
            PARSERS[module].build_parser().parse_args(words)
    assert rows
    for dataset in {dataset for dataset, _ in rows}:
        files = (REPO / "configs" / dataset).glob("*.yaml")
        assert {row for of, row in rows if of == dataset} == {path.stem for path in files} - {
            "base"
        }


@pytest.mark.parametrize(("updates", "quick"), [(5, ""), (99, "q"), (100, ""), (1000, "q")])
def test_any_budget_of_the_demo_leaves_the_checkpoints_that_are_averaged(
    updates: int, quick: str
) -> None:
    """And trains until its end: the rate of the quick demo is 0 after 400 updates."""
    found = commands("demo.sh", *["--quick"] * len(quick), "--max-update", updates)
    runs = [run for module, *words in found if module == "capsnmt.launch" for run in planned(words)]
    assert len(runs) > 1
    for run in runs:
        saved = updates // int(run.settings.train["save-interval-updates"] or 0)
        assert saved >= (run.settings.average.get("last-updates") or 0)
        assert run.settings.updates == updates


def test_a_text_comes_back_or_is_refused_where_it_is_empty(tmp_path: Path) -> None:
    text = tmp_path / "text.de"
    text.write_text("Zwei Hunde laufen durch das Gras.\n" * 2, "utf-8")
    assert "2 lines, 100.0% come back" in succeed("scripts.round_trip", f"de={text}")
    text.write_text("", "utf-8")
    done = command("scripts.round_trip", f"de={text}")
    is_refusal(done.returncode, done.stderr, f"{text} is empty")
