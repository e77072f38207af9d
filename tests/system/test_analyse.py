"""``capsnmt-analyse`` as a user runs it: ours beside fairseq's Transformer, and bad input."""

from argparse import Namespace
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from capsnmt.analysis.__main__ import main, named_checkpoints
from capsnmt.checkpoints.load import load_checkpoint, save_checkpoint
from tests.html_pages import without_images

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def checkpoints(
    trained: Dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Dict[str, Path]:
    """Checkpoints of our Transformer and of fairseq's, and one of an LSTM."""
    foreign = tmp_path_factory.mktemp("foreign") / "checkpoint_last.pt"
    state = load_checkpoint(trained["stock"])
    state["cfg"]["model"] = Namespace(**{**vars(state["cfg"]["model"]), "arch": "lstm"})
    save_checkpoint(state, foreign)
    return {"ours": trained["everything"], "stock": trained["stock"], "foreign": foreign}


def arguments(corpus: Path, output: Path, *given: str) -> List[str]:
    return [*given, "--data", str(corpus / "bin"), "--output", str(output), "--device", "cpu"]


def test_ours_and_fairseqs_transformer_side_by_side(
    checkpoints: Dict[str, Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    systems = [f"{name}={checkpoints[name]}" for name in ("ours", "stock")]
    given = [*systems, "--only", "attention,agreement", "--sentences", "3"]
    with without_images():
        assert main(arguments(corpus, tmp_path, *given)) == 0
    said = capsys.readouterr().err
    assert "stock: no agreement: nothing is routed, as by --head-aggregation simple" in said
    for name, expected in (("attention", {"ours", "stock"}), ("agreement", {"ours"})):
        _, *rows = (tmp_path / f"{name}.csv").read_text("utf-8").splitlines()
        assert {row.partition(",")[0] for row in rows} == expected
    figures = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"entropy.png", "entropy.svg", "agreement-ours-enc-self-1.png"} <= figures


@pytest.mark.one_host  # most are found before the model is loaded
def test_a_mistake_is_one_line_before_the_first_analysis(
    checkpoints: Dict[str, Path], corpus: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    for given, message in (
        ("a={ours} --subset tset", "--subset is tset, which "),
        ("a={ours} b={foreign}", "has the architecture lstm; give a translation model of capsnmt"),
    ):
        words = [word.format(**checkpoints) for word in given.split()]
        assert message in refused(main, *arguments(corpus, tmp_path / "analysis", *words))


def test_the_folder_of_prepared_data_is_taken_for_its_data_bin(tmp_path: Path) -> None:
    """As capsnmt-translate takes it: its dictionaries were not found."""
    (tmp_path / "manifest.json").touch()
    found = [named_checkpoints(["a=model.pt"], x)[0].data for x in (tmp_path / "bin", tmp_path)]
    assert found == [tmp_path / "bin"] * 2
