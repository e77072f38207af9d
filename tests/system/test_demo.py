"""``scripts/demo.sh``: its flags, the commands that it would run, and those of ``--quick``.

The long demo trains for minutes: continuous integration runs it as the user does.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest
from msgspec.structs import replace

from capsnmt.analysis import __main__ as analysis
from capsnmt.corpora import __main__ as preparation
from capsnmt.launch.run import Run
from capsnmt.report import __main__ as report
from tests.commands import succeed
from tests.scripts import planned
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
    """The commands of the demo after the text is written, without the interpreter and ``-m``.

    The data come first, then a training in the background.
    """
    done = demo("--dry-run", *flags, cwd=cwd)
    assert done.returncode == 0, done.stderr
    text, data, first, second, wait, *others = done.stdout.splitlines()
    assert "data_prep/catalogues.py" in text
    assert (first[-2:], wait) == (" &", "wait")
    return [shlex.split(line)[2:] for line in (data, first[:-2], second, *others)]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--pair", "de-en"], "--pair de-en: choose en-de, es-en, en-vi or zh-en"),
        (["--pair"], "--pair needs a value"),
        (["--minutes", "0"], "--minutes 0: give a whole number, 1 to 1000000"),
        (["--minutes", "1.5"], "--minutes 1.5: give a whole number"),
        (["--max-update", "4"], "--max-update 4: give a whole number, 5 or more"),
        (["--max-update", "9", "--minutes", "1"], "exclude each other"),
        (["--quick", "--pair", "en-de"], "--quick excludes --pair and --minutes"),
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


def run_of(command: List[str]) -> Run:
    """The run of a command of the launcher."""
    (run,) = planned(command[1:])
    return run


@pytest.mark.parametrize("pair", PAIRS)
def test_every_pair_of_the_corpus_is_trained_twice_with_the_same_budget(
    pair: str, tmp_path: Path
) -> None:
    data, routed, baseline, compared, analysed, page = commands(
        *("--pair", pair, "--seed", "3"), cwd=tmp_path
    )
    assert data[0] == "capsnmt.corpora"
    prepared = preparation.build_parser().parse_args(data[1:])
    assert [Path(name).name for name in prepared.train] == [f"train.{x}" for x in pair.split("-")]
    assert compared == [*routed, "--baseline", "baseline"]
    runs = []
    for command in (baseline, routed):
        assert command[0] == "capsnmt.launch"
        run = run_of(command)
        runs.append(run)
        assert "-".join(run.settings.languages) == pair
        assert run.config.seed == 3
        assert tmp_path / run.data.folder == tmp_path / prepared.output
    architectures = ["capsnmt_transformer_tiny", "transformer_em_routing_tiny"]
    assert [run.settings.arch for run in runs] == architectures
    one, other = (replace(run.settings, arch="") for run in runs)
    assert one == other
    assert page[0] == "capsnmt.report"
    output, rows = runs[0].output, [run.folder.path for run in runs]
    assert report.build_parser().parse_args(page[1:]).runs == rows
    assert analysed[0] == "capsnmt.analysis"
    of_analysis = analysis.build_parser().parse_args(analysed[1:])
    assert of_analysis.systems == [str(row) for row in rows]
    assert of_analysis.output == output / "analysis"  # where the report looks for it
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("updates", [5, 99, 100, 1000])
def test_any_budget_leaves_the_checkpoints_that_are_averaged(updates: int) -> None:
    for command in commands("--max-update", str(updates))[1:3]:
        run = run_of(command)
        saved = updates // int(run.settings.train["save-interval-updates"] or 0)
        assert saved >= (run.settings.average["last-updates"] or 0)
        assert run.settings.updates == updates


def test_without_a_budget_it_is_that_of_the_configuration() -> None:
    for command in commands()[1:3]:
        config = run_of(command).config
        bare = run_of(["", "--config", f"demo/{config.row}"]).config
        assert config.settings == bare.settings


@pytest.mark.one_host
@pytest.mark.parametrize("updates", [12, pytest.param(400, marks=pytest.mark.nightly)])
def test_the_quick_demo_learns_to_reverse_words(updates: int, tmp_path: Path) -> None:
    """By the commands that it prints; the last of them is the report."""
    flags = ("--quick", "--max-update", str(updates), "--output", str(tmp_path))
    lines = demo("--dry-run", *flags).stdout.removesuffix("\n").replace(" &", "").splitlines()
    text, *commands = (shlex.split(line)[1:] for line in lines if line != "wait")
    subprocess.run([sys.executable, *text], check=True)
    sources, targets = ((tmp_path / "text" / f"train.{x}").open() for x in ("src", "rev"))
    with sources, targets:
        assert all(a.split() == b.split()[::-1] for a, b in zip(sources, targets))
    for _, module, *words in commands:
        succeed(module, *words)
    page = (tmp_path / "report.md").read_text("utf-8")
    assert all(f"| {row} " in page for row in ("baseline", r"em\_routing"))
    for row in ("baseline", "em_routing"):
        log = (tmp_path / row / "seed-1" / "train.log").read_text("utf-8").splitlines()
        losses = [float(found) for found in re.findall(r'"valid_loss": "([\d.]+)"', "".join(log))]
        assert losses[-1] < losses[0]
        assert updates < 400 or losses[-1] < 0.05
