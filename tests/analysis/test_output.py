"""A second analysis into the same folder leaves nothing of the first one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capsnmt.analysis.agreement import Agreement
from capsnmt.analysis.analyse import Findings, Subject
from capsnmt.analysis.observation import observe
from capsnmt.analysis.output import write
from tests.analysis.kept_sentences import keep
from tests.analysis.passes import make_batch
from tests.support import build


@pytest.fixture(scope="module")
def both() -> Findings:
    """An analysis of the routing and of the sentences."""
    batch, model = make_batch(left_pad=True), build("capsule_transformer")
    sentences = keep("capsule", model, [batch])
    agreement = Agreement(sentences.system)
    observe(model, batch, [agreement])
    return Findings(
        subjects=[Subject("capsule", Path("model.pt"), Path("data"))],
        sentences={"capsule": 3},
        of={"agreement": {"capsule": agreement}, "sentences": {"capsule": sentences}},
    )


@pytest.fixture(scope="module")
def one(both: Findings) -> Findings:
    """The analysis of the routing alone."""
    return Findings(
        subjects=both.subjects,
        sentences=both.sentences,
        of={"agreement": both.of["agreement"]},
    )


def files(folder: Path) -> set:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_files_that_an_analysis_does_not_have_are_removed(
    both: Findings, one: Findings, tmp_path: Path
) -> None:
    output = tmp_path / "analysis"
    first = set(write(both, output))
    foreign = {output / "notes.csv", output / "figures" / "mine.png"}
    for path in foreign:
        path.touch()
    second = set(write(one, output))
    assert first - second
    assert files(output) == second | foreign
    assert output / "sentences.csv" in first - second


def test_the_list_of_files_cannot_reach_out_of_the_folder(one: Findings, tmp_path: Path) -> None:
    output = tmp_path / "analysis"
    written = set(write(one, output))
    outside = tmp_path / "outside.csv"
    outside.touch()
    (output / "figures" / "deep").mkdir()
    deep = output / "figures" / "deep" / "figure.png"
    deep.touch()
    names = ["../outside.csv", str(outside), "figures/../../outside.csv", "figures", "", 3]
    names += ["figures/deep/figure.png", "absent.csv"]
    for text in (json.dumps(names), "{", '{"a": 1}'):
        (output / "figures" / "files.json").write_text(text, "utf-8")
        assert set(write(one, output)) == written
        assert files(tmp_path) == {*written, outside, deep}
