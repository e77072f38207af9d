"""``capsnmt-average``: the mean, and the choice of checkpoints."""

import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import torch

from capsnmt.checkpoints.average import main


def write(path: Path, cfg: Any = None, **parameters: Any) -> Path:
    state = {
        "cfg": cfg or {"checkpoint": {"maximize_best_checkpoint_metric": False}},
        "model": parameters or {"w": torch.zeros(1)},
        "extra_state": {"train_iterator": {"epoch": 1}, "ema": {"w": torch.zeros(1)}},
        "last_optimizer_state": {"state": {}},
    }
    torch.save(state, path)
    return path


def average(folder: Path, *words: object) -> Dict[str, Any]:
    assert main([*map(str, words), "--output", str(folder / "mean.out")]) == 0
    return torch.load(folder / "mean.out", weights_only=False)


def sources(folder: Path, *words: object) -> List[str]:
    return average(folder, folder, *words)["extra_state"]["averaged_checkpoints"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_average_is_the_mean_rounded_once(
    tmp_path: Path, count: int, dtype: torch.dtype
) -> None:
    models = [(50 * torch.randn(7, 5)).to(dtype) for _ in range(count)]
    # in fp16, 2048 + 1 + 1 is 2048 however often 1 is added
    for place, model in enumerate(models):
        model[0, 0] = 1 if place else 2048
    paths = [write(tmp_path / f"{i}.pt", w=model) for i, model in enumerate(models)]
    averaged = average(tmp_path, *paths)["model"]["w"]
    expected = torch.from_numpy(np.mean([model.double().numpy() for model in models], axis=0))
    assert averaged.dtype == dtype
    torch.testing.assert_close(averaged, expected.to(dtype), atol=0, rtol=torch.finfo(dtype).eps)


def test_the_rest_is_the_last_checkpoints_without_what_belongs_to_one(tmp_path: Path) -> None:
    paths = []
    for i in (1, 2, 3):
        tied = torch.full((4,), float(i))
        words = {"version": torch.tensor([i]), "name": f"m{i}"}
        paths.append(write(tmp_path / f"{i}.pt", encoder=tied, decoder=tied, **words))
    averaged = average(tmp_path, *paths)
    model = averaged["model"]
    assert (model["encoder"].tolist(), model["name"]) == ([2.0] * 4, "m3")
    assert model["version"].tolist() == [3]
    assert model["encoder"].data_ptr() == model["decoder"].data_ptr(), "tied in the file"
    assert averaged["extra_state"] == {
        "train_iterator": {"epoch": 1},
        "averaged_checkpoints": ["1.pt", "2.pt", "3.pt"],
    }
    assert "last_optimizer_state" not in averaged


def test_the_mean_of_two_trainings_or_of_one_model_twice_is_warned_of(
    tmp_path: Path, capsys: Any
) -> None:
    """Of two seeds or systems, or of ``RUN/*.pt`` with the last checkpoint by several names."""
    plain: Dict[str, Any] = {"arch": "a", "mlmha": "M-00", "no_scale_embedding": False}
    others: List[Dict[str, Any]] = [{}, {}, {"mlmha": "M-10"}, {"no_scale_embedding": True}]
    for case, (seed, other) in enumerate(zip((1, 2, 1, 1), others)):
        models = (Namespace(**{**plain, **each}) for each in ({}, other))
        cfgs = [{"common": {"seed": n}, "model": each} for n, each in zip((1, seed), models)]
        average(tmp_path, *(write(tmp_path / f"{n}.pt", cfg) for n, cfg in enumerate(cfgs)))
        said = capsys.readouterr().err
        assert ("1.pt are of different trainings" in said) == (case > 0)
        assert f"1.pt has the weights of {tmp_path / '0.pt'}, which count twice" in said


def test_a_row_of_seeds_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for seed in (1, 2):
        (tmp_path / f"seed-{seed}" / "checkpoints").mkdir(parents=True)
        write(tmp_path / f"seed-{seed}" / "checkpoints" / "checkpoint_last.pt")
    command = [str(tmp_path), "--last-updates", "2", "--output", str(tmp_path / "mean.out")]
    assert main(command) == 2
    assert f"give one, such as {tmp_path / 'seed-1'}\n" in capsys.readouterr().err
    assert not (tmp_path / "mean.out").exists()


def test_checkpoints_are_ordered_by_their_numbers(tmp_path: Path) -> None:
    by_update = [f"checkpoint_{e}_{u}.pt" for e, u in ((1, 900), (2, 1000), (10, 1100))]
    for name in (*by_update, *(f"checkpoint{i}.pt" for i in range(1, 12)), "checkpoint_last.pt"):
        write(tmp_path / name)
    for name in ("checkpoint_11_1200-shard0.pt", ".checkpoint_12_1300.pt.1.part"):
        write(tmp_path / name)
    assert sources(tmp_path, "--last-updates", 2) == by_update[1:]
    folder = tmp_path / "run" / "checkpoints"  # of capsnmt-run, by the folder of the run
    shutil.copytree(tmp_path, folder)
    assert sources(folder.parent, "--last-updates", 2) == by_update[1:]
    shutil.copy(folder / by_update[0], folder.parent)  # a --save-dir beside another
    assert sources(folder.parent, "--last-updates", 1) == by_update[:1]
    assert sources(tmp_path, "--last-epochs", 3) == [f"checkpoint{i}.pt" for i in (9, 10, 11)]


@pytest.mark.parametrize(
    ("flag", "new", "old"), [("--last-updates", "_1_200", "_9_900"), ("--last-epochs", "1", "9")]
)
def test_checkpoints_that_an_earlier_training_left_are_warned_of(
    tmp_path: Path, capsys: Any, flag: str, new: str, old: str
) -> None:
    """As where a model is tuned in its own folder; fairseq would keep those, and no new ones."""
    last = write(tmp_path / "checkpoint_last.pt")
    state = torch.load(last, weights_only=False)
    torch.save({**state, "optimizer_history": [{"num_updates": 210}]}, last)
    write(tmp_path / f"checkpoint{new}.pt")
    average(tmp_path, tmp_path, flag, 1)
    assert "warning" not in capsys.readouterr().err
    left = write(tmp_path / f"checkpoint{old}.pt", w=torch.ones(1))
    average(tmp_path, tmp_path, flag, 2)
    assert f"warning: {left} is later than checkpoint_last.pt" in capsys.readouterr().err


@pytest.mark.parametrize("maximise", [True, False])
def test_best_follows_the_direction_of_the_metric(tmp_path: Path, maximise: bool) -> None:
    cfg = {"checkpoint": {"maximize_best_checkpoint_metric": maximise}}
    for value in ("9.5001", "27.3102", "-0.1000"):
        write(tmp_path / f"checkpoint.best_bleu_{value}.pt", cfg=cfg)
    best = ["9.5001", "27.3102" if maximise else "-0.1000"]
    expected = [f"checkpoint.best_bleu_{value}.pt" for value in best]
    assert sources(tmp_path, "--best", 2) == expected
