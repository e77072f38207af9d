"""Scores of segments that another program computed: means, tests, seeds, tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from capsnmt import records
from capsnmt.evaluation.__main__ import main
from capsnmt.evaluation.scores import Evaluation
from tests.evaluation.outputs import write_lines

SEGMENTS = 12
GOOD = [0.9, 0.8, 0.7, 0.95, 0.85, 0.75, 0.91, 0.81, 0.71, 0.96, 0.86, 0.5]
BASE = [0.6, 0.9, 0.65, 0.9, 0.8, 0.7, 0.95, 0.7, 0.6, 0.9, 0.8, 0.55]


def plain(path: Path, scores: List[Any]) -> Path:
    return write_lines(path, map(str, scores))


def comet(path: Path, scores: List[Any]) -> Path:
    """What ``comet-score --to_json`` writes about one file of translations."""
    segments = [{"src": "a", "mt": "b", "ref": "c", "COMET": score} for score in scores]
    path.with_suffix(".json").write_text(json.dumps({"detokenised.txt": segments}), "utf-8")
    return path.with_suffix(".json")


def metricx(path: Path, scores: List[Any]) -> Path:
    """The output file of MetricX."""
    lines = [json.dumps({"hypothesis": "b", "prediction": score}) for score in scores]
    return write_lines(path.with_suffix(".jsonl"), lines)


FORMATS: List[Callable[[Path, List[Any]], Path]] = [plain, comet, metricx]


@pytest.fixture
def arguments(files: Dict[str, str], tmp_path: Path) -> List[str]:
    """Two systems and the scores of their segments."""
    own = {name: plain(tmp_path / f"{name}.comet", scores) for name, scores in SCORES.items()}
    systems = [f"good={files['good']}", "--baseline", f"base={files['half']}"]
    pairs = [f"{name}={path}" for name, path in own.items()]
    return [*systems, "--reference", files["reference"], "--segment-scores", "COMET", *pairs]


SCORES = {"good": GOOD, "base": BASE}


def as_json(capsys: pytest.CaptureFixture, *arguments: str) -> Dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def bootstrap_p_value(samples: int, seed: int) -> float:
    """Paired bootstrap resampling of a mean, from its definition."""
    one, other = np.array(GOOD), np.array(BASE)
    draws = np.random.default_rng(seed).choice(SEGMENTS, size=(samples, SEGMENTS), replace=True)
    differences = np.array([abs(one[draw].mean() - other[draw].mean()) for draw in draws])
    real = abs(one.mean() - other.mean())
    return (sum(differences - differences.mean() > real) + 1) / (samples + 1)


def randomization_p_value(samples: int, seed: int) -> float:
    """Paired approximate randomization of a mean, from its definition."""
    one, other = np.array(GOOD), np.array(BASE)
    generator = np.random.default_rng(seed)
    exchanged = generator.integers(2, size=(samples, SEGMENTS), dtype=bool)
    differences = [abs(np.where(row, other - one, one - other).mean()) for row in exchanged]
    real = abs((one - other).mean())
    return (sum(np.round(differences, 9) > round(real, 9)) + 1) / (samples + 1)


@pytest.mark.parametrize(
    ("flags", "p_value", "signature"),
    [
        (["--samples", "500"], bootstrap_p_value(500, 7), "nsegs:12"),
        (
            ["--significance", "approximate-randomization", "--samples", "500"],
            randomization_p_value(500, 7),
            "nsegs:12",
        ),
    ],
    ids=["bootstrap", "randomization"],
)
def test_means_are_tested_as_defined_and_printed_with_their_signature(
    arguments: List[str],
    flags: List[str],
    p_value: float,
    signature: str,
    capsys: pytest.CaptureFixture,
) -> None:
    document = as_json(capsys, *arguments, *flags, "--seed", "7")
    base, good = (system["outputs"][0]["scores"]["COMET"] for system in document["systems"])
    assert good["score"] == pytest.approx(np.mean(GOOD))
    assert base["score"] == pytest.approx(np.mean(BASE))
    assert good["p_value"] == pytest.approx(p_value)
    assert "p_value" not in base
    assert good["signature"].startswith(signature)
    assert records.plain(records.build(document, Evaluation, "x")) == document
    assert main([*arguments, *flags, "--seed", "7"]) == 0
    table = capsys.readouterr().out.split("means of the scores of all segments")[1]
    assert f"{np.mean(GOOD):.4f}" in table
    assert f"{p_value:.4f}" in table
    assert good["signature"] in table


@pytest.mark.parametrize("write", FORMATS)
def test_every_format_has_the_same_scores(
    files: Dict[str, str], tmp_path: Path, write: Callable, capsys: pytest.CaptureFixture
) -> None:
    path = write(tmp_path / "scores", GOOD)
    flags = ["--segment-scores", "COMET", f"x={path}", "--segment-scores", f"x={path}"]
    document = as_json(capsys, f"x={files['good']}", *flags)
    means = document["systems"][0]["outputs"][0]["scores"]
    for metric in ("COMET", "segment score"):
        assert means[metric]["score"] == pytest.approx(np.mean(GOOD))


def test_a_file_of_comet_score_about_several_systems_is_read_by_their_files(
    files: Dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    lists = {
        files["good"]: [{"COMET": score} for score in GOOD],
        files["half"]: [{"COMET": score} for score in BASE],
    }
    path = tmp_path / "both.json"
    path.write_text(json.dumps(lists), "utf-8")
    systems = [f"good={files['good']}", f"base={files['half']}", "--segment-scores", "COMET"]
    document = as_json(capsys, *systems, f"good={path}", f"base={path}")
    (one,), (other,) = (system["outputs"] for system in document["systems"])
    found = [output["scores"]["COMET"]["score"] for output in (one, other)]
    assert found == [pytest.approx(np.mean(scores)) for scores in (GOOD, BASE)]


def test_seeds_have_mean_and_deviation_and_are_tested_one_by_one(
    files: Dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    paths = [plain(tmp_path / f"{number}", scores) for number, scores in enumerate((GOOD, BASE))]
    systems = [f"x={files['good']},{files['third']}", "--baseline", f"b={files['half']}"]
    flags = ["--segment-scores", "M", f"x={paths[0]},{paths[1]}", f"b={paths[1]}"]
    arguments = [*systems, *flags, "--samples", "50"]
    assert main([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    means = [output["scores"]["M"]["score"] for output in document["systems"][1]["outputs"]]
    assert means == [pytest.approx(np.mean(scores)) for scores in (GOOD, BASE)]
    # the second seed was given the scores of the baseline
    assert "M: x (" in printed.err
    assert "equals b in every sentence: ignore its p-value" in printed.err
    assert records.plain(records.build(document, Evaluation, "x")) == document


MISTAKES: Dict[str, Any] = {
    "too few": ([*GOOD[:-1]], "has 11 scores, but the test set has 12 segments"),
    "a word": ([*GOOD[:-1], "good"], "score 12: 'good' is not a number"),
    "a blank line": ([*GOOD[:-1], ""], "score 12: '' is not a number"),
    "not a number": ([*GOOD[:-1], "nan"], "score 12: nan is not a finite number"),
    "infinite": (["-inf", *GOOD[:-1]], "score 1: -inf is not a finite number"),
}


def refuse(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    """Run the command, which must refuse in one line, and return the line."""
    assert main([*arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = [
        line for line in printed.err.splitlines() if not line.startswith("capsnmt-evaluate: ")
    ]
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize("write", FORMATS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_bad_scores_are_one_line_that_names_the_file(
    files: Dict[str, str],
    tmp_path: Path,
    write: Callable,
    mistake: str,
    capsys: pytest.CaptureFixture,
) -> None:
    scores, complaint = MISTAKES[mistake]
    if write is not plain and "number" in complaint and "finite" in complaint:
        scores = [float(score) for score in scores]  # JSON of Python has NaN and Infinity
    path = write(tmp_path / "scores", scores)
    line = refuse(capsys, f"x={files['good']}", "--segment-scores", "M", f"x={path}")
    assert str(path) in line
    assert complaint in line


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["COMET"], "has no file"),
        (["COMET", "good"], "'good': give SYSTEM=FILE"),
        (["COMET", "good="], "'good=': give SYSTEM=FILE"),
        (["BLEU", "good={path}"], "'BLEU' cannot name the metric"),
        (["COMET", "good={path}"], "has no scores of base"),
        (["COMET", "good={path}", "base={path}", "other={path}"], "choose from base, good"),
        (["COMET", "good={path}", "good={path}"], "good is given twice"),
        (["COMET", "good={path},{path}", "base={path}"], "has 1 outputs, but 2 files"),
        (["COMET", "good={path}x", "base={path}"], "no such file"),
        (["COMET", "good={json}", "base={path}"], "a segment lacks 'COMET'"),
        (["COMET", "good={two}", "base={path}"], "run comet-score --to_json for each"),
    ],
)
def test_a_bad_flag_is_one_line(
    files: Dict[str, str],
    tmp_path: Path,
    flags: List[str],
    complaint: str,
    capsys: pytest.CaptureFixture,
) -> None:
    path = plain(tmp_path / "scores", GOOD)
    for name, content in {"json": {"a": [{"x": 1}]}, "two": {"a": [], "b": []}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content), "utf-8")
    places = {name: str(tmp_path / f"{name}.json") for name in ("json", "two")}
    flags = [flag.format(path=path, **places) for flag in flags]
    systems = [f"good={files['good']}", "--baseline", f"base={files['half']}"]
    assert complaint in refuse(capsys, *systems, "--segment-scores", *flags)
