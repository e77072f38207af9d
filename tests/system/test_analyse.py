"""``capsnmt-analyse`` as a user runs it: ours beside fairseq's Transformer, and bad input."""

from __future__ import annotations

import csv
from argparse import Namespace
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from capsnmt.analysis.__main__ import main
from capsnmt.checkpoints.load import load_checkpoint, save_checkpoint
from tests.commands import command, made_once, train

pytestmark = pytest.mark.system

COLUMNS = {
    "attention": "system,attention,layer,head,distance,distance_one_sided,entropy",
    "agreement": "system,place,kind,layer,iteration,entropy,diversity",
    "disagreement": "system,attention,layer,subspace,position,output",
    "similarity": "system,stack,layer_a,layer_b,cka",
    "anisotropy": "system,stack,layer,cosine",
    "head_ablation": "system,attention,layer,head,loss,increase,standard_error",
}
OURS = ["--head-aggregation", "em", "--head-aggregation-attention", "enc-self,enc-dec,dec-self"]


@pytest.fixture(scope="session")
def checkpoints(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """Checkpoints of our Transformer and of fairseq's, after one update."""

    def make(folder: Path) -> None:
        small = ["--encoder-layers", 2, "--decoder-layers", 1]
        train(corpus / "bin", folder / "ours", "capsnmt_transformer_tiny", 1, *small, *OURS)
        train(corpus / "bin", folder / "stock", "transformer_tiny", 1, *small)

    folder = made_once(tmp_path_factory, "analysed", make)
    return {name: folder / name / "checkpoint_last.pt" for name in ("ours", "stock")}


@pytest.fixture
def analyse(corpus: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run the command with the corpus and an output folder."""

    def run(*arguments: object, data: Path = corpus / "bin") -> Any:
        output = tmp_path / "analysis"
        flags = ["--data", data, "--output", output, "--device", "cpu"]
        return command("capsnmt.analysis", *arguments, *flags), output

    return run


def edited(checkpoint: Path, path: Path, **settings: object) -> Path:
    """Copy a checkpoint with other settings of its model."""
    state = load_checkpoint(checkpoint)
    model = state["cfg"]["model"]
    state["cfg"]["model"] = Namespace(**{**vars(model), **settings})
    save_checkpoint(state, path)
    return path


def rows(path: Path) -> List[Dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.nightly  # the demo analyses two systems, and the next test one on both hosts
def test_ours_and_fairseqs_transformer_side_by_side(
    checkpoints: Dict[str, Path], analyse: Callable[..., Any]
) -> None:
    done, output = analyse(*(f"{name}={path}" for name, path in checkpoints.items()))
    assert done.returncode == 0, done.stderr
    for name, header in COLUMNS.items():
        assert (output / f"{name}.csv").read_text("utf-8").splitlines()[0] == header
    attention = rows(output / "attention.csv")
    assert {row["system"] for row in attention} == {"ours", "stock"}
    ours = [row for row in attention if row["system"] == "ours"]
    assert len(ours) == (2 + 1 + 1) * 4  # layers of the three attentions, heads
    assert {row["system"] for row in rows(output / "agreement.csv")} == {"ours"}
    assert "stock: no agreement: it routes nothing (--head-aggregation simple" in done.stderr
    figures = {path.name for path in (output / "figures").iterdir()}
    assert {
        "entropy.png",
        "entropy.svg",
        "agreement-ours-dec-self-1.png",
    } <= figures
    assert not list(output.rglob("*.part"))
    again, _ = analyse(f"ours={checkpoints['ours']}", "--only", "attention", "--sentences", "3")
    assert again.returncode == 0
    assert {row["system"] for row in rows(output / "attention.csv")} == {"ours"}


def test_every_checkpoint_is_checked_before_the_first_analysis(
    checkpoints: Dict[str, Path], analyse: Callable[..., Any], tmp_path: Path
) -> None:
    foreign = edited(checkpoints["stock"], tmp_path / "foreign.pt", arch="lstm")
    for name, path, message in (
        ("foreign", foreign, "its architecture is lstm: give a translation model of capsnmt"),
        ("gone", tmp_path / "no.pt", "there is no such checkpoint: check the path"),
    ):
        done, output = analyse(f"ours={checkpoints['ours']}", f"{name}={path}")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"error: {path}: {message}")
        assert not output.exists()


def test_data_with_another_dictionary(
    checkpoints: Dict[str, Path], analyse: Callable[..., Any], corpus: Path, tmp_path: Path
) -> None:
    data = tmp_path / "bin"
    data.mkdir()
    for more, message in (
        (b"more 1\n", "give the data of its training"),
        (b"more 1\nmore 1\n", "Duplicate word found"),
        (b"\xff 1\n", "Incorrect encoding detected"),
    ):
        for path in (corpus / "bin").iterdir():
            text = path.read_bytes()
            (data / path.name).write_bytes(text + more if path.suffix == ".txt" else text)
        done, output = analyse(f"ours={checkpoints['ours']}", data=data)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert not output.exists()


@pytest.mark.one_host  # found before the model is loaded
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{ours}"], "give NAME=CHECKPOINT, or the folder of a finished run"),
        (["a/b={ours}"], "name of a system: 'a/b' cannot be the name of a folder"),
        (["a={ours}", "a={ours}"], "a: two systems have this name: rename one"),
        (["a={ours}", "--only", "colours"], "--only 'colours': choose from attention, "),
        (["a={ours}", "--subset", "tset"], "--subset tset: "),
        (["a={ours}", "--sentences", "0"], "'0' is not a whole number of at least 1"),
    ],
)
def test_a_mistake_is_one_line(
    checkpoints: Dict[str, Path],
    corpus: Path,
    tmp_path: Path,
    arguments: List[str],
    message: str,
    capsys: pytest.CaptureFixture,
) -> None:
    output = tmp_path / "analysis"
    given = [argument.replace("{ours}", str(checkpoints["ours"])) for argument in arguments]
    flags = ["--data", str(corpus / "bin"), "--output", str(output), "--device", "cpu"]
    assert main([*given, *flags]) == 2
    errors = capsys.readouterr().err
    assert message in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert not output.exists()


def test_an_interruption_leaves_no_file(
    checkpoints: Dict[str, Path],
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    output = tmp_path / "analysis"
    flags = ["--data", str(corpus / "bin"), "--output", str(output), "--device", "cpu"]
    system = f"ours={checkpoints['ours']}"
    with monkeypatch.context() as patched:
        patched.setattr("capsnmt.analysis.analyse.observe", interrupt)
        assert main([system, *flags]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "error: interrupted"
    assert not output.exists()
    monkeypatch.setattr("os.replace", interrupt)  # all files are written, none is renamed
    assert main([system, *flags, "--only", "attention"]) == 130
    assert not [path for path in output.rglob("*") if path.is_file()]
