"""The difference to the baseline, and what mt-thresholds says about it."""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Dict, List

import pytest

from capsnmt.evaluation.__main__ import main
from capsnmt.evaluation.metrics import METRICS
from capsnmt.evaluation.thresholds import estimated_accuracy
from tests.evaluation.test_segment_scores import as_json

# mt-thresholds 1.0.4: height and slope of the fitted curves
CURVES = {"bleu": (88.33333333333225, 0.9663926931178954), "comet22": (96.22374, 2.83592)}


def accuracy(delta: float, metric: str) -> float:
    """mt-thresholds' function of this name."""
    height, slope = CURVES[metric]
    return height / (1 + math.exp(-slope * delta))


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The interface of mt-thresholds."""
    module = ModuleType("mt_thresholds")
    module.accuracy = accuracy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mt_thresholds", module)
    return module


def test_the_package_agrees_with_its_documented_value() -> None:
    pytest.importorskip("mt_thresholds")
    assert estimated_accuracy("bleu", 1.0) == pytest.approx(63.989, abs=1e-3)
    chrf, comet = estimated_accuracy("chrf", 0.665), estimated_accuracy("comet22", 0.0056)
    assert chrf == pytest.approx(63, abs=1)
    assert comet == pytest.approx(80, abs=0.5)


@pytest.fixture
def arguments(files: Dict[str, str]) -> List[str]:
    systems = [f"good={files['good']},{files['third']}", "--baseline", f"base={files['half']}"]
    return [*systems, "--reference", files["reference"], "--resamples", "5"]


def test_differences_and_accuracies_are_in_the_table_and_the_document(
    stub: ModuleType, arguments: List[str], capsys: pytest.CaptureFixture
) -> None:
    stub.accuracy = lambda delta, metric: 50 + delta / 4
    document = as_json(capsys, *arguments)
    assert main(arguments) == 0
    table = capsys.readouterr().out
    base, good = document["systems"]
    for metric in METRICS:
        assert base["significance"][metric]["delta"] is None
        for output in good["outputs"]:
            tested = output["significance"][metric]
            delta = output[metric]["score"] - base[metric]["score"]
            assert tested["delta"] == pytest.approx(delta)
            assert f"{delta:+.2f}" in table
            known = metric in ("bleu", "chrf")
            assert tested["accuracy"] == (pytest.approx(50 + abs(delta) / 4) if known else None)
        mean = good[metric]["score"] - base[metric]["score"]
        assert f"{mean:+.2f}" in table
    for output in good["outputs"]:
        assert f"{output['significance']['bleu']['accuracy']:.0f}%" in table
    assert "Kocmi et al. 2024" in table


def test_without_the_package_there_are_differences_only(
    arguments: List[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mt_thresholds", None)
    tested = as_json(capsys, *arguments)["systems"][1]["outputs"][0]["significance"]["bleu"]
    assert tested["accuracy"] is None
    assert tested["delta"] > 0
    assert main(arguments) == 0
    assert "acc." not in capsys.readouterr().out
