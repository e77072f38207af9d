"""compare-mt's report is seeded, and complete or absent; our n-grams are those it prints."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Dict, List

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation import compare_mt
from capsnmt.evaluation.compare_mt import check_folder, write_report
from capsnmt.evaluation.settings import CompareMT

SIZE, RESAMPLES = 40, 10


@pytest.fixture(scope="module")
def texts(ted: Dict[str, List[str]]) -> Dict[str, List[str]]:
    """Tokens of a part of the real outputs, one with a word that is markup in HTML."""
    short = {name: ted[f"{name}.tokens"][:SIZE] for name in ("reference", "sys1", "sys2")}
    short["sys2"] = ["<unk> & co", *short["sys2"][1:]]
    return short


def report(folder: Path, texts: Dict[str, List[str]]) -> str:
    check_folder(folder)
    systems = [("one", texts["sys1"]), ("<two>", texts["sys2"])]
    write_report(CompareMT(folder, RESAMPLES, 7), texts["reference"], systems, None)
    return (folder / "report.txt").read_text("utf-8")


@pytest.mark.system
@pytest.mark.one_host  # compare-mt needs neither torch nor fairseq
def test_the_report_is_seeded_complete_and_has_ngrams(
    texts: Dict[str, List[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    text = report(folder, texts)
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    settings = json.loads((folder / "settings.json").read_text("utf-8"))
    found = settings["seed"], settings["bootstrap"], settings["sample ratio"]
    assert found == (7, RESAMPLES, 0.5)
    assert settings["arguments"][settings["arguments"].index("--seed") + 1] == "7"
    page = (folder / "index.html").read_text("utf-8")
    assert "<unk>" not in page
    assert "&lt;two&gt;" in page
    # "my 0.8 (sys1=3, sys2=0)" for each n-gram it finds characteristic
    assert re.search(r"^\S.*\t\d\S* \(sys1=\d+, sys2=\d+\)$", text, re.MULTILINE)


@pytest.mark.system
@pytest.mark.one_host  # as above
@pytest.mark.nightly  # the test above shows that compare-mt is given the seed
def test_the_report_is_the_same_again(texts: Dict[str, List[str]], tmp_path: Path) -> None:
    assert report(tmp_path / "one", texts) == report(tmp_path / "other", texts)


def test_a_folder_of_other_things_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigurationError, match="is not an empty folder"):
        check_folder(tmp_path)
    with pytest.raises(ConfigurationError, match="is not an empty folder"):
        check_folder(tmp_path / "thesis.tex")
    check_folder(tmp_path / "new")


def test_without_compare_mt_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_mt, "NEEDED", ("compare_mt_that_is_absent",))
    with pytest.raises(ConfigurationError, match=r"pip install 'capsnmt\[evaluation\]'"):
        check_folder(tmp_path / "new")


def test_a_failure_of_compare_mt_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_mt.sys, "executable", shutil.which("false"))
    with pytest.raises(ConfigurationError, match="compare-mt failed: ") as caught:
        write_report(CompareMT(tmp_path / "new", 2, 1), ["a b"], [("x", ["a b"])], None)
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
