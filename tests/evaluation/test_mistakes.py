"""``capsnmt-evaluate``: one line for every mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from capsnmt.cli import CLOSED_PIPE
from capsnmt.evaluation.__main__ import main
from tests.commands import command

# arguments, part of the message
MISTAKES: Dict[str, Tuple[List[str], str]] = {
    "missing": (["{good}x"], "no such file"),
    "empty": (["{empty}"], "is empty"),
    "not UTF-8": (["{latin1}"], "line 1: not UTF-8"),
    "plain text": (["{plain}"], "has no H- lines"),
    "two decodings": (["{twice}"], "is repeated"),
    "a gap": (["{gap}"], "1 of the sentences 0..11 have no H- line (7)"),
    "other length": (
        ["{short}", "--reference", "{reference}"],
        "has 5 segments, but the reference",
    ),
    "other lengths": (["{good}", "{short}"], "has 5 segments, but the reference"),
    "other reference": (["{good}", "{other}"], "different references of sentence 11"),
    "no reference": (["{untargeted}"], "has no T- lines"),
    "plain without reference": (["{plain}", "--input", "plain"], "give --reference FILE"),
    "missing reference": (["{good}", "--reference", "{good}x"], "no such file"),
    "blank reference": (["{good}", "--reference", "{blank}"], "all 12 lines are blank"),
    "two languages": (["{good}", "{german}"], "translate into de and en"),
    "no name": (["={good}"], "a system is called ''"),
    "one name": (["x={good}", "x={half}"], "two systems are called 'x'"),
    "baseline alone": (["x={good}", "--baseline", "x"], "is the only system"),
    "seed alone": (["{good}", "--seed", "3"], "--seed has no effect without --baseline"),
    "resamples alone": (["{good}", "--samples", "3"], "--samples has no effect"),
    "test alone": (["{good}", "--significance", "bootstrap"], "--significance has no effect"),
    "another test": (["{good}", "--baseline", "b={half}", "--significance", "t"], "'t'"),
    "short source": (["{good}", "--source", "{latin}"], "--source"),
    "short tokens": (["{good}", "--tokenized-reference", "{latin}"], "has 3 segments, but the ref"),
    "empty path": (["x={good},"], "a path is empty"),
    "one output twice": (["x={good},{good}"], "is given twice: give the file of each seed once"),
    "a seed is missing": (
        ["x={good},{half},{third}", "--baseline", "b={half},{good}"],
        "x has 3 outputs, but the baseline b has 2",
    ),
    "folder of others": (["{good}", "--compare-mt", "{folder}"], "is not an empty folder"),
    "no words to compare": (
        ["{good}", "--target-lang", "zh", "--compare-mt", "{folder}/new"],
        "compares words, and this target language",
    ),
    "seed 0": (["{good}", "--baseline", "b={half}", "--seed=0"], "'0' is not"),
    "unknown input": (["{good}", "--input=xml"], "'xml'"),
    "no language": (["{good}", "--target-lang=german"], "'german' is not a language code"),
    "unknown flag": (["{good}", "--metric", "bleu"], "--metric"),
    "JSON onto a system": (["{good}", "--json", "{half}"], "is not a report of this command"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_changes_no_file(
    files: Dict[str, str], tmp_path: Path, mistake: str, capsys: pytest.CaptureFixture
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    arguments, complaint = MISTAKES[mistake]
    arguments = [argument.format(folder=tmp_path, **files) for argument in arguments]
    if "--json" not in arguments:
        arguments += ["--json", str(tmp_path / "report.json")]
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = [
        line for line in printed.err.splitlines() if not line.startswith("capsnmt-evaluate: ")
    ]
    assert line.startswith("error: ")
    assert complaint in line
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.system
def test_the_command_ends_with_one_line_and_a_non_zero_status(files: Dict[str, str]) -> None:
    done = command("capsnmt.evaluation", files["gap"])
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {files['gap']}")
    assert done.stderr.count("\n") == 1


@pytest.mark.system
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(
    files: Dict[str, str], closed: str
) -> None:
    arguments = [files["good"] if closed == "stdout" else files["gap"]]
    read, write = os.pipe()
    os.close(read)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: write}
    done = subprocess.run(
        [sys.executable, "-m", "capsnmt.evaluation", *arguments], text=True, check=False, **streams
    )
    os.close(write)
    assert done.returncode == CLOSED_PIPE
    assert "Error" not in (done.stdout or "") + (done.stderr or "")
