"""The document of ``capsnmt-evaluate --json`` and its records hold the same."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.__main__ import main as evaluate
from capsnmt.evaluation.document import from_json, read_evaluation, to_json
from capsnmt.evaluation.metrics import COMPARABLE, METRICS
from capsnmt.evaluation.scores import common_metrics

# what a document holds, by flags of the command: every key of the contract
KEYS = [
    *("reference", "target_lang", "systems", "tokenized", "lengths"),
    *("baseline", "test", "resamples", "trials", "seed", "versions"),
]
RANDOMIZED = ["--significance", "approximate-randomization"]


def document(folder: Path, *arguments: str) -> Dict[str, Any]:
    path = folder / "document.json"
    assert evaluate([*arguments, "--json", str(path)]) == 0
    return json.loads(path.read_text("utf-8"))


@pytest.fixture
def tested(files: Dict[str, str], tmp_path: Path) -> Dict[str, Any]:
    """Two systems of two seeds, tested, into German."""
    baseline = f"base={files['half']},{files['third']}"
    flags = ["--reference", files["reference"], "--resamples", "5", "--target-lang", "de"]
    systems = [f"good={files['good']},{files['third']}", "--baseline", baseline]
    return document(tmp_path, *systems, *flags)


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--baseline", "base={half}", "--resamples", "5"],
        [*RANDOMIZED, "--baseline", "base={half}", "--trials", "5"],
        ["--target-lang", "zh"],
    ],
    ids=["scored", "tested", "randomized", "no words"],
)
def test_a_document_of_one_output_survives_being_read_and_written(
    files: Dict[str, str], tmp_path: Path, flags: List[str]
) -> None:
    arguments = [f"x={files['good']}", *(flag.format(**files) for flag in flags)]
    value = document(tmp_path, *arguments)
    assert list(value) == KEYS
    assert to_json(from_json(value, "x")) == value


def test_a_document_of_several_seeds_survives_being_read_and_written(
    tested: Dict[str, Any],
) -> None:
    assert to_json(from_json(tested, "x")) == tested


def test_records_hold_the_numbers_of_the_document(tested: Dict[str, Any]) -> None:
    evaluation = from_json(tested, "x")
    assert evaluation.test is not None
    assert (evaluation.test.baseline, evaluation.test.significance.samples) == ("base", 5)
    good = evaluation.system("good")
    entry = next(system for system in tested["systems"] if system["name"] == "good")
    for metric in METRICS:
        assert good.spread(metric).mean == entry[metric]["score"]
        for output, own in zip(good.outputs, entry["outputs"]):
            assert output.score(metric).score == own[metric]["score"]
            assert output.score(metric).p_value == own["significance"][metric]["p_value"]
    for kind in COMPARABLE:
        assert good.outputs[0].score(kind).score == entry["outputs"][0]["tokenized"][kind]["score"]
    with pytest.raises(KeyError):
        evaluation.system("absent")


def test_what_older_documents_lack_is_absent(tested: Dict[str, Any]) -> None:
    older = copy.deepcopy(tested)
    for key in ("tokenized", "lengths", "versions", "target_lang", "test", "trials"):
        del older[key]
    for system in older["systems"]:
        for output in system["outputs"]:
            for key in ("tokenized", "by_length", "sign_test", "chrf++"):
                del output[key]
    evaluation = from_json(older, "x")
    output = evaluation.system("good").outputs[0]
    assert evaluation.test == from_json(tested, "x").test
    assert (evaluation.lengths, evaluation.versions, output.by_length) == (None, {}, None)
    assert (output.tokenized, output.sign_test) == ({}, None)
    assert list(common_metrics([output])) == ["bleu", "chrf", "ter"]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ({"systems": [{"name": "x", "path": "x"}]}, "it lacks 'bleu'"),
        ({"systems": None}, "is not a document"),
        ({"reference": {"source": "x"}}, "is not a document"),
    ],
)
def test_something_else_is_one_line(
    tested: Dict[str, Any], damage: Dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({**tested, **damage}), "utf-8")
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        read_evaluation(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value).splitlines()) == 1
