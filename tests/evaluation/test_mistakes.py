"""``capsnmt-evaluate``: one line for every mistake, and nothing written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from capsnmt.cli import CLOSED_PIPE
from capsnmt.evaluation.__main__ import main
from tests.evaluation.outputs import write_lines

PAIR = ["good={good}", "--baseline", "base={half}"]
COMET = ["--segment-scores", "COMET"]
# arguments, part of the message
MISTAKES: Dict[str, Tuple[List[str], str]] = {
    "missing": (["{good}x"], "no such file"),
    "empty": (["{empty}"], "is empty"),
    "not UTF-8": (["{latin1}"], "line 1: not UTF-8"),
    "plain text": (["{plain}"], "has no H- lines"),
    "two decodings": (["{twice}"], "is repeated"),
    "a gap": (["{gap}"], "1 of the sentences 0..11 have no H- line (7)"),
    "other length": (["{short}", "--reference", "{reference}"], "has 5 segments, but the refer"),
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
    "samples alone": (["{good}", "--samples", "3"], "--samples has no effect"),
    "test alone": (["{good}", "--significance", "bootstrap"], "--significance has no effect"),
    "another test": ([*PAIR, "--significance", "t"], "'t'"),
    "short source": (["{good}", "--source", "{latin}"], "--source"),
    "short tokens": (["{good}", "--tokenized-reference", "{latin}"], "has 3 segments, but the ref"),
    "empty path": (["x={good},"], "a path is empty"),
    "one output twice": (["x={good},{good}"], "is repeated: give the file of each seed once"),
    "a seed is missing": (
        ["x={good},{half},{third}", "--baseline", "b={half},{good}"],
        "x has 3 outputs, but the baseline b has 2",
    ),
    "folder of others": (["{good}", "--compare-mt", "{folder}"], "is not an empty folder"),
    "file of others": (["{good}", "--compare-mt", "{half}"], "is not an empty folder"),
    "no words to compare": (
        ["{good}", "--target-lang", "zh", "--compare-mt", "{folder}/new"],
        "compares words, and this target language",
    ),
    "seed 0": ([*PAIR, "--seed=0"], "'0' is not"),
    "unknown input": (["{good}", "--input=xml"], "'xml'"),
    "no language": (["{good}", "--target-lang=german"], "'german' is not a language code"),
    "unknown flag": (["{good}", "--metric", "bleu"], "--metric"),
    "JSON into a folder": (["{good}", "--json", "{folder}"], "must be a file"),
    "scores without a metric": ([*PAIR, "--segment-scores", "good={numbers}"], "has no file"),
    "scores without a file": ([*PAIR, *COMET], "has no file"),
    "scores without a system": ([*PAIR, *COMET, "good"], "'good': give SYSTEM=FILE"),
    "a metric that is there": ([*PAIR, "--segment-scores", "BLEU", "good={numbers}"], "BLEU: cann"),
    "no scores of a system": ([*PAIR, *COMET, "good={numbers}"], "has no scores of base"),
    "scores of another system": (
        [*PAIR, *COMET, "good={numbers}", "base={numbers}", "other={numbers}"],
        "choose from base, good",
    ),
    "scores twice": ([*PAIR, *COMET, "good={numbers}", "good={numbers}"], "good is given twice"),
    "scores of seeds": (
        [*PAIR, *COMET, "good={numbers},{numbers}", "base={numbers}"],
        "has 1 outputs, but 2 files",
    ),
    "missing scores": ([*PAIR, *COMET, "good={good}x", "base={numbers}"], "no such file"),
    "JSON of others": (["x={good}", *COMET, "x={folder}/others.json"], "field `COMET`"),
    "COMET of others": (["x={good}", *COMET, "x={folder}/two.json"], "run comet-score --to_json"),
    "too few scores": (
        ["x={good}", *COMET, "x={latin}s"],
        "has 11 scores, but the test set has 12",
    ),
    "a word": (["x={good}", *COMET, "x={folder}/word"], "score 12: could not convert"),
    "a word of MetricX": (["x={good}", *COMET, "x={folder}/word.jsonl"], "score 1: "),
    "no number": (["x={good}", *COMET, "x={folder}/nan"], "score 12: nan is not a finite number"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_everything_as_it_was(
    files: Dict[str, str], tmp_path: Path, mistake: str, capsys: pytest.CaptureFixture
) -> None:
    numbers = [str(number / 16) for number in range(12)]
    files = {**files, "numbers": str(write_lines(tmp_path / "numbers", numbers))}
    write_lines(tmp_path / "latins", numbers[1:])
    for name, last in (("word", "good"), ("word.jsonl", '{"x": 1}'), ("nan", "nan")):
        write_lines(tmp_path / name, [*numbers[1:], last])
    for name, lists in (("others", {"a": [{"x": 1}]}), ("two", {"a": [], "b": []})):
        (tmp_path / f"{name}.json").write_text(json.dumps(lists), "utf-8")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    arguments, complaint = MISTAKES[mistake]
    arguments = [argument.format(folder=tmp_path, **files) for argument in arguments]
    if "--json" not in arguments:
        arguments += ["--json", str(tmp_path / "report.json")]
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    *warnings, line = printed.err.splitlines()
    assert all(warning.startswith("capsnmt-evaluate: ") for warning in warnings)
    assert line.startswith("error: ")
    assert complaint in line
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


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


def test_a_failure_of_compare_mt_is_one_line_and_leaves_nothing(
    files: Dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert main([files["good"], "--compare-mt", str(tmp_path / "new")]) == 2
    assert "compare-mt failed: " in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()
