"""A trained model needs nothing of its training: neither its baseline, nor its machine."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from capsnmt.models import CapsnmtTransformer
from tests.commands import (
    ON_CPU,
    TINY,
    command,
    hypotheses,
    succeed,
    train,
    training,
)
from tests.support import PLUGIN, REPO

pytestmark = pytest.mark.system

LAST = "checkpoint_last.pt"
ARCH = "transformer_em_routing_tiny"
LAYERS = ("--encoder-layers", "2", "--decoder-layers", "1")


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a routed model after an update."""
    folder = tmp_path_factory.mktemp("routed")
    train(data, folder, ARCH, 1, *LAYERS)
    return folder / LAST


@pytest.fixture(scope="module")
def elsewhere(trained: Path) -> Path:
    """The same as from a machine with a GPU and Triton kernels, which this one has not."""
    state = torch.load(trained, weights_only=False)
    settings = vars(state["cfg"]["model"])
    state["cfg"]["model"] = Namespace(**{**settings, "routing_backend": "triton"})
    path = trained.with_name("elsewhere.pt")
    torch.save(state, path)
    return path


def started(log: str) -> bool:
    """Return whether a training began with the tensors of a baseline."""
    return "tensors loaded" in log


def test_a_training_that_goes_on_needs_no_baseline(
    data: Path, trained: Path, tmp_path: Path
) -> None:
    baseline = tmp_path / "baseline.pt"
    baseline.write_bytes(trained.read_bytes())
    flags = [*LAYERS, "--init-from", baseline]
    assert started(train(data, tmp_path / "run", ARCH, 1, *flags))
    baseline.unlink()
    log = train(data, tmp_path / "run", ARCH, 2, *flags)
    assert not started(log)
    assert "Loaded checkpoint" in log
    state = torch.load(tmp_path / "run" / LAST, weights_only=False)
    assert state["optimizer_history"][-1]["num_updates"] == 2
    assert state["cfg"]["model"].init_from is None


@pytest.mark.nightly
def test_a_checkpoint_that_is_restored_by_name_needs_none(
    data: Path, trained: Path, tmp_path: Path
) -> None:
    flags = [*LAYERS, "--init-from", tmp_path / "no.pt", "--restore-file", trained]
    assert not started(train(data, tmp_path / "run", ARCH, 2, *flags))


@pytest.mark.nightly
def test_a_hydra_training_that_goes_on_needs_no_baseline(
    data: Path, trained: Path, tmp_path: Path
) -> None:
    baseline = tmp_path / "baseline.pt"
    baseline.write_bytes(trained.read_bytes())
    names = [name[2:].replace("-", "_") for name in TINY[::2]]
    for updates in (1, 2):
        succeed(
            "fairseq_cli.hydra_train",
            *("--config-dir", REPO / "configs" / "hydra"),
            *("--config-name", "wmt14_en_de_li2019_effective", f"task.data={data}"),
            *(f"common.user_dir={PLUGIN}", "common.cpu=true", "common.fp16=false"),
            *(f"hydra.run.dir={tmp_path / 'hydra'}", f"optimization.max_update={updates}"),
            *(f"+model.{name}={size}" for name, size in zip(names, TINY[1::2])),
            *("+model.encoder_layers=2", "+model.decoder_layers=1", "dataset.max_tokens=512"),
            f"+model.init_from={baseline}",
        )
        baseline.unlink(missing_ok=True)
    state = torch.load(tmp_path / "hydra" / "checkpoints" / LAST, weights_only=False)
    assert state["optimizer_history"][-1]["num_updates"] == 2


def test_a_fresh_start_needs_its_baseline(data: Path, tmp_path: Path) -> None:
    done = command(
        "fairseq_cli.train",
        *training(data, tmp_path / "run", ARCH, 1, *LAYERS, "--init-from", tmp_path / "no.pt"),
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert f"{tmp_path / 'no.pt'}" in done.stderr.splitlines()[-1]


def test_it_generates_where_its_backend_is_missing(
    data: Path, trained: Path, elsewhere: Path
) -> None:
    found = []
    for path in (trained, elsewhere):
        flags = ["--user-dir", PLUGIN, "--path", path, "--beam", "2", "--max-len-b", "6", *ON_CPU]
        found.append(hypotheses(succeed("fairseq_cli.generate", data, *flags)))
    assert found[0] == found[1]
    assert len(found[0]) == 8


@pytest.mark.one_host
@pytest.mark.nightly
def test_it_is_analysed_where_its_backend_is_missing(
    data: Path, elsewhere: Path, tmp_path: Path
) -> None:
    succeed(
        "capsnmt.analysis",
        *(f"routed={elsewhere}", "--data", data, "--output", tmp_path / "page"),
        *("--sentences", "2", "--device", "cpu"),
    )
    assert (tmp_path / "page" / "agreement.csv").is_file()


def test_it_is_loaded_in_python_where_its_backend_is_missing(data: Path, elsewhere: Path) -> None:
    settings = {"checkpoint_file": elsewhere.name, "data_name_or_path": str(data), "beam": 2}
    folder = str(elsewhere.parent)
    hub: Any = torch.hub.load(str(REPO), "capsnmt", folder, source="local", **settings)
    own: Any = CapsnmtTransformer.from_pretrained(folder, **settings)
    line = "routing by agreement"
    assert hub.translate(line) == own.translate(line)


def test_it_is_not_trained_where_its_backend_is_missing(data: Path, tmp_path: Path) -> None:
    done = command(
        "fairseq_cli.train",
        *training(data, tmp_path / "run", ARCH, 1, *LAYERS, "--routing-backend", "triton"),
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "--routing-backend" in last
    assert "use auto or eager" in last
    assert not list((tmp_path / "run").glob("*.pt"))
