"""Checkpoint averaging: the mean, the choice of checkpoints, and the real command lines."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Dict, List, Sequence

import numpy as np
import pytest
import torch

from capsnmt.checkpoints.average import main
from capsnmt.checkpoints.load import CheckpointError, load_checkpoint, save_checkpoint
from capsnmt.checkpoints.mean import average_checkpoints
from capsnmt.checkpoints.selection import (
    BY_EPOCH,
    BY_UPDATE,
    best_checkpoints,
    last_checkpoints,
)
from capsnmt.cli import ConfigurationError
from tests.commands import command, succeed
from tests.support import PLUGIN


def write(path: Path, maximise: bool = False, **parameters: Any) -> Path:
    """A checkpoint with these parameters."""
    state = {
        "args": None,
        "cfg": {"checkpoint": {"maximize_best_checkpoint_metric": maximise}},
        "model": parameters or {"w": torch.zeros(1)},
        "extra_state": {"train_iterator": {"epoch": 1}, "ema": {"w": torch.zeros(1)}},
        "last_optimizer_state": {"state": {}},
    }
    save_checkpoint(state, path)
    return path


def names(paths: Sequence[Path]) -> List[str]:
    return [path.name for path in paths]


def random_models(folder: Path, count: int, dtype: torch.dtype) -> List[Path]:
    generator = torch.Generator().manual_seed(0)
    return [
        write(folder / f"{i}.pt", w=(50 * torch.randn(7, 5, generator=generator)).to(dtype))
        for i in range(count)
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_average_is_the_mean_rounded_once(
    tmp_path: Path, count: int, dtype: torch.dtype
) -> None:
    paths = random_models(tmp_path, count, dtype)
    stacked = np.stack([load_checkpoint(path)["model"]["w"].double().numpy() for path in paths])
    averaged = average_checkpoints(paths)["model"]["w"]
    assert averaged.dtype == dtype
    expected = torch.from_numpy(np.mean(stacked, axis=0)).to(dtype).numpy()
    np.testing.assert_array_max_ulp(averaged.numpy(), expected, maxulp=0 if count == 1 else 1)


def test_the_sum_does_not_lose_small_terms(tmp_path: Path) -> None:
    # in fp16, 2048 + 1 + 1 is 2048 however often 1 is added
    values = [2048.0, 1.0, 1.0, 1.0]
    paths = [
        write(tmp_path / f"{i}.pt", w=torch.tensor([value], dtype=torch.float16))
        for i, value in enumerate(values)
    ]
    expected = torch.tensor([2051 / 4], dtype=torch.float16)
    assert torch.equal(average_checkpoints(paths)["model"]["w"], expected)
    assert expected.item() != 512.0


def test_bfloat16_stays_bfloat16(tmp_path: Path) -> None:
    paths = random_models(tmp_path, 3, torch.bfloat16)
    mean = torch.stack([load_checkpoint(path)["model"]["w"].double() for path in paths]).mean(0)
    assert torch.equal(average_checkpoints(paths)["model"]["w"], mean.to(torch.bfloat16))


def test_integers_and_the_rest_are_the_last_checkpoints(tmp_path: Path) -> None:
    for i in (1, 2, 3):
        write(tmp_path / f"{i}.pt", w=torch.ones(1) * i, version=torch.tensor([i]), name=f"m{i}")
    averaged = average_checkpoints([tmp_path / "1.pt", tmp_path / "2.pt", tmp_path / "3.pt"])
    assert averaged["model"] == {
        "w": torch.tensor([2.0]),
        "version": torch.tensor([3]),
        "name": "m3",
    }


def test_the_result_names_its_sources_and_drops_what_belongs_to_one(tmp_path: Path) -> None:
    averaged = average_checkpoints([write(tmp_path / "1.pt"), write(tmp_path / "2.pt")])
    assert "last_optimizer_state" not in averaged
    assert averaged["extra_state"] == {
        "train_iterator": {"epoch": 1},
        "averaged_checkpoints": ["1.pt", "2.pt"],
    }


def test_tied_parameters_stay_tied_in_the_file(tmp_path: Path) -> None:
    for i in (1.0, 3.0):
        tied = torch.full((4,), i)
        write(tmp_path / f"{i}.pt", encoder=tied, decoder=tied)
    save_checkpoint(
        average_checkpoints([tmp_path / "1.0.pt", tmp_path / "3.0.pt"]), tmp_path / "mean.pt"
    )
    model = load_checkpoint(tmp_path / "mean.pt")["model"]
    assert model["encoder"].tolist() == [2.0] * 4
    assert model["encoder"].data_ptr() == model["decoder"].data_ptr()


def test_other_parameters_and_shapes_name_the_file_and_the_key(tmp_path: Path) -> None:
    a = write(tmp_path / "a.pt", w=torch.zeros(2), v=torch.zeros(1))
    b = write(tmp_path / "b.pt", w=torch.zeros(2))
    c = write(tmp_path / "c.pt", w=torch.zeros(2), v=torch.zeros(3))
    with pytest.raises(CheckpointError, match=r"b\.pt has no v, which .*a\.pt has"):
        average_checkpoints([a, b])
    with pytest.raises(CheckpointError, match=r"b\.pt has no v, which .*a\.pt has"):
        average_checkpoints([b, a])
    with pytest.raises(CheckpointError, match=r"c\.pt: v has shape \[3\], but \[1\] in .*a\.pt"):
        average_checkpoints([a, c])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_name_the_checkpoint_and_the_parameter(
    tmp_path: Path, value: float
) -> None:
    weights = torch.tensor([1.0, value])
    positions = {"embed_positions._float_tensor": torch.tensor([value])}  # never set by fairseq
    good = write(tmp_path / "a.pt", w=torch.zeros(2), **positions)
    bad = write(tmp_path / "b.pt", w=weights, **positions)
    with pytest.raises(CheckpointError, match=r"b\.pt: w has NaN or infinite weights"):
        average_checkpoints([good, bad])
    assert average_checkpoints([good, good])["model"]["w"].tolist() == [0, 0]


def touched(folder: Path, *files: str) -> Path:
    for name in files:
        (folder / name).touch()
    return folder


def test_updates_are_ordered_as_numbers_and_epochs_left_out(tmp_path: Path) -> None:
    run = touched(
        tmp_path,
        *("checkpoint_1_900.pt", "checkpoint_2_1000.pt", "checkpoint_10_1100.pt"),
        *("checkpoint11.pt", "checkpoint_last.pt", "checkpoint_best.pt"),
        *("checkpoint_11_1200-shard0.pt", ".checkpoint_12_1300.pt.1.part", "xcheckpoint_1_2000.pt"),
    )
    assert names(last_checkpoints(run, BY_UPDATE, 2)) == [
        "checkpoint_2_1000.pt",
        "checkpoint_10_1100.pt",
    ]


def test_epochs_are_ordered_as_numbers_and_bounded(tmp_path: Path) -> None:
    run = touched(tmp_path, *(f"checkpoint{i}.pt" for i in range(1, 12)), "checkpoint_1_500.pt")
    assert names(last_checkpoints(run, BY_EPOCH, 3)) == [f"checkpoint{i}.pt" for i in (9, 10, 11)]
    assert names(last_checkpoints(run, BY_EPOCH, 2, upper_bound=9)) == [
        "checkpoint8.pt",
        "checkpoint9.pt",
    ]


@pytest.mark.parametrize(
    ("maximise", "expected"),
    [(True, ["bleu_9.5001", "bleu_27.3102"]), (False, ["bleu_9.5001", "bleu_-0.1000"])],
)
def test_best_follows_the_direction_of_the_metric(
    tmp_path: Path, maximise: bool, expected: List[str]
) -> None:
    for value in ("9.5001", "27.3102", "-0.1000"):
        write(tmp_path / f"checkpoint.best_bleu_{value}.pt", maximise=maximise)
    assert names(best_checkpoints(tmp_path, 2)) == [
        f"checkpoint.best_{name}.pt" for name in expected
    ]


def test_best_reads_the_direction_from_checkpoints_older_than_configurations(
    tmp_path: Path,
) -> None:
    for value in ("1.0000", "2.0000"):
        path = write(tmp_path / f"checkpoint.best_bleu_{value}.pt")
        state = load_checkpoint(path)
        state.update(cfg=None, args=argparse.Namespace(maximize_best_checkpoint_metric=True))
        save_checkpoint(state, path)
    assert names(best_checkpoints(tmp_path, 1)) == ["checkpoint.best_bleu_2.0000.pt"]


def test_best_by_two_metrics_is_refused(tmp_path: Path) -> None:
    run = touched(tmp_path, "checkpoint.best_bleu_1.0000.pt", "checkpoint.best_loss_1.0000.pt")
    with pytest.raises(ConfigurationError, match="bleu and loss"):
        best_checkpoints(run, 1)


# arguments after the folder of three epoch checkpoints, part of the message
MISTAKES: Dict[str, Any] = {
    "too many": (["{run}", "--last-epochs", "4"], "has 3 checkpoints named by epoch, not 4"),
    "too many below": (["{run}", "--last-epochs", "3", "--upper-bound", "2"], "epoch up to 2"),
    "none by update": (["{run}", "--last-updates", "1"], "has 0 checkpoints named by update"),
    "none best": (["{run}", "--best", "1"], "has 0 checkpoints named best"),
    "no choice": (["{run}"], "choose its checkpoints by"),
    "bound of best": (
        ["{run}", "--best", "1", "--upper-bound", "2"],
        "--upper-bound has no effect",
    ),
    "bound of files": (["{run}/checkpoint1.pt", "--upper-bound", "2"], "--upper-bound chooses"),
    "missing": (["{run}/checkpoint9.pt"], "no such checkpoint"),
    "missing folder": (["{run}/no", "--best", "1"], "is not a folder"),
    "two folders": (["{run}", "{run}", "--best", "1"], "is not the only input"),
    "twice": (["{run}/checkpoint1.pt", "{run}/checkpoint1.pt"], "given twice"),
    "onto an input": (
        ["{run}/checkpoint1.pt", "--output", "{run}/checkpoint1.pt"],
        "is a checkpoint that is read",
    ),
    "a count of 0": (["{run}", "--best=0"], "'0' is not a whole number"),
    "two choices": (["{run}", "--best", "1", "--last-epochs", "1"], "not allowed with argument"),
    "no output folder": (
        ["{run}/checkpoint1.pt", "--output", "{run}/no/mean.pt"],
        "an existing folder",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_no_file(
    tmp_path: Path, mistake: str, capsys: pytest.CaptureFixture
) -> None:
    for epoch in (1, 2, 3):
        write(tmp_path / f"checkpoint{epoch}.pt")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    arguments, complaint = MISTAKES[mistake]
    arguments = [argument.format(run=tmp_path) for argument in arguments]
    if "--output" not in arguments:
        arguments += ["--output", str(tmp_path / "mean.pt")]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_averaging_one_trained_checkpoint_changes_nothing(trained: Path, tmp_path: Path) -> None:
    source = trained / "checkpoints" / "checkpoint2.pt"
    assert main([str(source), "--output", str(tmp_path / "mean.pt")]) == 0
    before, after = load_checkpoint(source), load_checkpoint(tmp_path / "mean.pt")
    assert before["model"].keys() == after["model"].keys()
    assert all(torch.equal(after["model"][key], value) for key, value in before["model"].items())
    assert vars(after["cfg"]["model"]) == vars(before["cfg"]["model"])


def test_the_three_choices_average_a_trained_run(trained: Path, tmp_path: Path) -> None:
    run = trained / "checkpoints"
    for flags in (["--last-updates", "2"], ["--last-epochs", "2"], ["--best", "2"]):
        output = tmp_path / f"{flags[0]}.pt"
        assert main([str(run), "--output", str(output), *flags]) == 0
        averaged = load_checkpoint(output)
        sources = averaged["extra_state"]["averaged_checkpoints"]
        models = [load_checkpoint(run / name)["model"] for name in sources]
        assert len(models) == 2
        assert any(not torch.equal(models[0][key], models[1][key]) for key in models[0])
        for key, value in averaged["model"].items():
            mean = (models[0][key].double() + models[1][key].double()) / 2
            assert torch.equal(value, mean.to(value.dtype)), key


@pytest.mark.system
@pytest.mark.one_host  # tests/system/test_command_lines.py averages and generates on both
def test_an_average_generates_and_its_output_is_scored(trained: Path, tmp_path: Path) -> None:
    run, mean = trained / "checkpoints", tmp_path / "mean.pt"
    succeed("capsnmt.checkpoints.average", run, "--last-epochs", 2, "--output", mean)
    generated = succeed(
        "fairseq_cli.generate",
        *(trained / "data", "--user-dir", PLUGIN, "--path", mean, "--cpu", "--beam", "2"),
        *("--nbest", "2", "--max-len-b", "5", "--num-workers", "0"),
        # ve-fairseq drops the last batch where its size is no multiple of the default, 8
        *("--required-batch-size-multiple", "1"),
    )
    scored = command("capsnmt.evaluation", "-", "--json", stdin=generated)
    assert scored.returncode == 0, scored.stderr
    assert '"segments": 12' in scored.stdout
