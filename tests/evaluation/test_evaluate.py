"""``capsnmt-evaluate``: its choices, its tables and its JSON."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List
from unittest import mock

import pytest
from sacrebleu.metrics import TER

from capsnmt.cli import CLOSED_PIPE
from capsnmt.evaluation.__main__ import main
from capsnmt.evaluation.scores import METRICS, SAMPLES
from tests.evaluation.conftest import Evaluate, outputs
from tests.evaluation.outputs import generated, write_lines
from tests.interpreter import interpreter


def test_tokens_are_scored_as_the_text_that_they_are(
    files: Dict[str, str], evaluate: Evaluate
) -> None:
    """In the language that the log names."""
    reference = ["--reference", files["reference"]]
    document = evaluate(f"x={files['half']}", *reference)
    assert document["target_lang"] == "en"
    generate = outputs(document)["x"]["scores"]
    plain = outputs(evaluate(f"x={files['plain']}", *reference, "--input", "plain"))["x"]["scores"]
    for metric in METRICS:
        assert generate[metric] == plain[metric]
        assert 0 < plain[metric]["score"] < 100


@pytest.mark.parametrize("flags", [[], ["--baseline", "b={half}", "--samples", "20"]])
def test_metrics_are_left_out_on_request(
    files: Dict[str, str], evaluate: Evaluate, capsys: pytest.CaptureFixture, flags: List[str]
) -> None:
    """And in reports of such scores: tests/report."""
    given = [f"x={files['good']}", "--reference", files["reference"]]
    given += [flag.format(**files) for flag in flags]
    complete = outputs(evaluate(*given))["x"]
    capsys.readouterr()
    with mock.patch.object(TER, "_compute_segment_statistics", side_effect=AssertionError):
        some = outputs(evaluate(*given, "--metrics", "chrf"))["x"]  # bleu is always one
    left = {key: each for key, each in complete["scores"].items() if key not in ("chrf++", "ter")}
    assert some == {**complete, "scores": left}
    printed = capsys.readouterr().out
    assert re.search(r"(?m)^BLEU\nsystem (.*\n)+\nchrF2\n|^system +BLEU +chrF2\n", printed)
    assert "TER" not in printed


@pytest.mark.parametrize("terminal", [True, False])
def test_the_progress_of_ter_is_shown_on_a_terminal(
    files: Dict[str, str], capsys: pytest.CaptureFixture, terminal: bool
) -> None:
    with mock.patch("sys.stderr.isatty", return_value=terminal):
        assert main([files["good"], "--reference", files["reference"]]) == 0
    assert ("TER: " in capsys.readouterr().err) == terminal


@pytest.mark.parametrize("method", SAMPLES)
def test_equal_scores_do_not_differ(tmp_path: Path, evaluate: Evaluate, method: str) -> None:
    """No word is right in either; sacreBLEU finds p = 1 / (B + 1)."""
    texts = {"a": ["qqq"] * 20, "b": ["zzz"] * 20, "r": ["the house is nice today"] * 20}
    a, b, r = (write_lines(tmp_path / name, lines) for name, lines in texts.items())
    flags = ["--input", "plain", "--significance", method, "--samples", "20"]
    found = outputs(evaluate(f"b={b}", "--baseline", f"a={a}", "--reference", r, *flags))
    for metric in METRICS:
        score = found["b"]["scores"][metric]
        assert (score["delta"], score["p_value"]) == (0, 1), metric


@pytest.mark.parametrize("baseline", ["base", "{half}", "base={half}"])
def test_a_baseline_is_a_name_or_a_file_and_comes_first(
    files: Dict[str, str], evaluate: Evaluate, baseline: str
) -> None:
    systems = [f"good={files['good']}", f"base={files['half']}"]
    flags = ["--reference", files["reference"], "--samples", "20", "--seed", "7"]
    document = evaluate(*systems, "--baseline", baseline.format(**files), *flags)
    assert document["test"]["baseline"] == "base"
    assert [system["name"] for system in document["systems"]] == ["base", "good"]
    # another file that was not given yet
    alone = evaluate(systems[0], "--baseline", systems[1], *flags)
    assert outputs(alone) == outputs(document)


@pytest.mark.parametrize("baseline", [["third", "half"], ["half"]])
def test_each_seed_is_tested_against_its_own_seed_or_the_only_one_of_the_baseline(
    files: Dict[str, str], evaluate: Evaluate, baseline: List[str], capsys: pytest.CaptureFixture
) -> None:
    flags = ["--reference", files["reference"], "--samples", "20", "--details"]
    against = ",".join(files[name] for name in baseline)
    seeds = evaluate(f"x={files['good']},{files['third']}", "--baseline", f"b={against}", *flags)
    said = "against that of b in the same place: " if baseline[1:] else "each output, against b: "
    assert said in capsys.readouterr().out
    for number, name in enumerate(("good", "third")):
        base = files[baseline[number % len(baseline)]]
        alone = evaluate(f"x={files[name]}", "--baseline", f"b={base}", *flags)
        assert seeds["systems"][1]["outputs"][number] == outputs(alone)["x"]


def test_with_a_tokenised_reference_the_tokens_are_those_that_were_decoded(
    tmp_path: Path, evaluate: Evaluate, capsys: pytest.CaptureFixture
) -> None:
    line = "Don &apos;t re @-@ do it , please ."
    output = write_lines(tmp_path / "output", generated([line]))
    tokens = write_lines(tmp_path / "tokens", [line])
    other = write_lines(tmp_path / "other", ["something else"])
    flags = ["--reference", other, "--tokenized-reference", tokens]
    found = outputs(evaluate(f"x={output}", *flags))["x"]["scores"]
    assert found["multi-bleu"]["score"] == pytest.approx(100)
    assert found["multi-bleu"]["signature"].endswith("|text:as-given")
    # they need not be those of Moses
    assert "on the tokens that its signature names (" in capsys.readouterr().out
    assert found["bleu"]["score"] == 0


@pytest.mark.system
def test_the_report_of_compare_mt_is_seeded_and_shows_text_as_it_is_or_is_not_left(
    ted: Dict[str, List[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = {name: ted[f"{name}.tokens"][:40] for name in ("reference", "sys1", "sys2")}
    short["sys2"] = ["<unk> & co", *short["sys2"][1:]]
    reference, one, two = (write_lines(tmp_path / name, short[name]) for name in short)
    folder = tmp_path / "report"
    words = [f"one={one}", f"<two>={two}", "--input", "plain", "--samples", 10, "--seed", 7]
    words += ["--reference", reference, "--tokenized-reference", reference]
    words += ["--tokenized-reference", two, "--compare-mt", folder]
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert main([*map(str, words), "--metrics", "bleu"]) == 2
    assert "compare-mt failed: " in capsys.readouterr().err.splitlines()[-1]
    assert not folder.exists()
    monkeypatch.setattr(sys, "executable", str(interpreter()))
    folder.mkdir()
    assert main([*map(str, words)]) == 0
    printed = capsys.readouterr()
    assert f"{folder}/index.html" in printed.out
    assert "compare-mt's report is of the first reference; it takes one\n" in printed.err
    text, page = (folder / "report.txt").read_text("utf-8"), (folder / "index.html").read_text()
    assert text.startswith("compare-mt reference system-0 system-1")
    assert "score_type=bleu,bootstrap=10 " in text
    assert "--seed 7 " in text
    assert "sys1=" in text
    assert "<unk>" not in page
    assert "&lt;two&gt;" in page


@pytest.mark.system
def test_a_reader_that_closes_the_pipe_of_its_errors_ends_the_command(
    files: Dict[str, str],
) -> None:
    """That of its output: tests/translate/test_translate.py."""
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "capsnmt.evaluation", files["gap"]]
    words += ["--reference", files["reference"]]
    assert subprocess.run(words, stderr=write, check=False).returncode == CLOSED_PIPE
    os.close(write)
