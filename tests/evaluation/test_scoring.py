"""Scores and tests of significance agree with sacreBLEU's command line, to its last digit."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from capsnmt.evaluation.__main__ import main
from capsnmt.evaluation.scores import METRICS
from tests.commands import succeed
from tests.evaluation.outputs import write_lines

SEED_VARIABLE = "SACREBLEU_SEED"
DIGITS = 12


def sacrebleu(folder: Path, texts: Dict[str, List[str]], *flags: object) -> str:
    """What ``sacrebleu reference -i sys1 sys2`` prints."""
    files = {name: write_lines(folder / name, lines) for name, lines in texts.items()}
    return succeed(
        "sacrebleu",
        *(files["reference"], "-i", files["sys1"], files["sys2"], "-w", DIGITS, "--no-color"),
        *("-f", "latex", *flags),
    )


def flags(metrics: List[str]) -> List[object]:
    """The flags for some metrics; chrF++ is a setting of sacreBLEU's chrF."""
    if metrics == ["chrf++"]:
        return ["-m", "chrf", "--chrf-word-order", 2]
    return ["-m", *metrics]


def cells(table: str, system: str) -> List[List[str]]:
    """For each metric of a row of sacreBLEU's table: score, mean, confidence interval, p-value."""
    row = next(line for line in table.splitlines() if system in line and "&" in line)
    return [re.findall(r"\d+\.\d+", cell) for cell in row.split("&")[1:]]


def printed(value: float, digits: int = DIGITS) -> str:
    return f"{value:.{digits}f}"


def evaluated(folder: Path, texts: Dict[str, List[str]], *flags: object) -> List[Dict[str, Any]]:
    """What the command writes about ``sys1`` and ``sys2``."""
    files = {name: write_lines(folder / name, lines) for name, lines in texts.items()}
    arguments = [f"sys1={files['sys1']}", f"sys2={files['sys2']}", "--input", "plain"]
    arguments += ["--reference", str(files["reference"]), *map(str, flags)]
    assert main([*arguments, "--json", str(folder / "scores.json")]) == 0
    systems = json.loads((folder / "scores.json").read_text("utf-8"))["systems"]
    return [{"name": each["name"], **each["outputs"][0]["scores"]} for each in systems]


def signed(table: str) -> str:
    """What sacreBLEU prints, its signatures without the test."""
    return re.sub(r"(bs|ar):\d+\|seed:\d+\|", "", table)


METRIC_SETS = [["bleu", "chrf", "ter"], ["chrf++"]]


@pytest.mark.parametrize(
    ("segments", "metric_sets", "method", "samples"),
    [
        (60, METRIC_SETS, "bs", 200),
        (60, METRIC_SETS[:1], "ar", 200),
        # the same with the numbers of a real test set
        pytest.param(None, [["bleu"]], "bs", 1000, marks=pytest.mark.nightly),
        pytest.param(None, [["bleu"]], "ar", 1000, marks=pytest.mark.nightly),
    ],
)
def test_scores_and_significance_are_those_of_the_sacrebleu_command(
    ted: Dict[str, List[str]],
    tmp_path: Path,
    segments: Optional[int],
    metric_sets: List[List[str]],
    method: str,
    samples: int,
) -> None:
    texts = {name: lines[:segments] for name, lines in ted.items()}
    ours = {
        "bs": ["--samples", samples],
        "ar": ["--significance", "approximate-randomization", "--samples", samples],
    }[method]
    systems = evaluated(tmp_path, texts, "--baseline", "sys1", "--target-lang", "en", *ours)
    for metrics in metric_sets:
        flag = f"--paired-{method}"
        table = sacrebleu(tmp_path, texts, *flags(metrics), flag, f"{flag}-n", samples)
        for system in systems:
            for metric, theirs in zip(metrics, cells(table, system["name"])):
                score = system[metric]
                if method == "bs":
                    theirs.pop(1)  # the mean over the resamples
                expected = [printed(score[key]) for key in ("score", "ci") if key in score]
                if system["name"] == "sys2":
                    expected.append(printed(score["p_value"], 4))
                assert theirs == expected
                assert score["signature"] in signed(table)


@pytest.mark.parametrize("metrics", METRIC_SETS)
def test_scores_without_a_test_are_those_of_the_sacrebleu_command(
    ted: Dict[str, List[str]], tmp_path: Path, metrics: List[str]
) -> None:
    texts = {name: lines[:40] for name, lines in ted.items()}
    table = sacrebleu(tmp_path, texts, *flags(metrics))
    for system in evaluated(tmp_path, texts):
        scores = [[printed(system[metric]["score"])] for metric in metrics]
        assert cells(table, system["name"]) == scores
        assert all(system[metric]["signature"] in table for metric in metrics)
        assert not any("p_value" in system[metric] for metric in metrics)


@pytest.mark.parametrize("method", ["bootstrap", "approximate-randomization"])
def test_the_seed_decides_and_the_environment_does_not(
    ted: Dict[str, List[str]], tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {name: lines[:30] for name, lines in ted.items()}

    def p_values(seed: int) -> List[float]:
        flags = ["--baseline", "sys1", "--significance", method, "--samples", 50, "--seed", seed]
        system = evaluated(tmp_path, texts, *flags)[1]
        return [system[metric]["p_value"] for metric in METRICS]

    found = [p_values(seed) for seed in (1, 2)]
    assert found[0] != found[1]
    monkeypatch.setenv(SEED_VARIABLE, "999")
    assert p_values(1) == found[0]
    assert os.environ[SEED_VARIABLE] == "999"
    monkeypatch.delenv(SEED_VARIABLE)
    assert p_values(1) == found[0]
    assert SEED_VARIABLE not in os.environ


def test_a_missing_tokeniser_is_one_line(
    files: Dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    assert main([files["good"], "--target-lang", "ja"]) == 2
    assert capsys.readouterr().err.endswith("pip install 'sacrebleu[ja]'\n")
