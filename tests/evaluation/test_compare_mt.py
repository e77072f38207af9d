"""compare-mt's report is seeded, and its page shows text as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, List

import pytest

from capsnmt.evaluation.__main__ import main
from tests.evaluation.outputs import write_lines

# compare-mt needs neither torch nor fairseq
pytestmark = [pytest.mark.system, pytest.mark.one_host]


def report(folder: Path, ted: Dict[str, List[str]], capsys: pytest.CaptureFixture) -> str:
    """The text of the report on a part of the real outputs, one with a word that is markup."""
    short = {name: ted[f"{name}.tokens"][:40] for name in ("reference", "sys1", "sys2")}
    short["sys2"] = ["<unk> & co", *short["sys2"][1:]]
    files = {name: write_lines(folder.parent / name, lines) for name, lines in short.items()}
    arguments = [f"one={files['sys1']}", f"<two>={files['sys2']}", "--input", "plain"]
    arguments += ["--reference", str(files["reference"]), "--samples", "10", "--seed", "7"]
    arguments += ["--tokenized-reference", str(files["reference"]), "--compare-mt", str(folder)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert f"{folder}/index.html" in printed
    assert "10 resamples of 50% of the segments, seed 7" in printed
    return (folder / "report.txt").read_text("utf-8")


def test_the_report_is_seeded_and_complete(
    ted: Dict[str, List[str]], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    text = report(folder, ted, capsys)
    settings = json.loads((folder / "settings.json").read_text("utf-8"))
    assert (settings["seed"], settings["bootstrap"], settings["sample ratio"]) == (7, 10, 0.5)
    assert settings["arguments"][settings["arguments"].index("--seed") + 1] == "7"
    page = (folder / "index.html").read_text("utf-8")
    assert "<unk>" not in page
    assert "&lt;two&gt;" in page
    assert "sys1=" in text


@pytest.mark.nightly  # the test above shows that compare-mt is given the seed
def test_the_report_is_the_same_again(
    ted: Dict[str, List[str]], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    one, other = (report(tmp_path / name, ted, capsys) for name in ("one", "other"))
    assert one == other
