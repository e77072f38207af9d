"""The hosts: what the plugin relies on, what it refuses, and that they read each other's models."""

import functools
import os
import re
import sys
from pathlib import Path
from typing import List

import numpy as np
import pytest
import torch
from fairseq import models, utils
from fairseq.data import FairseqDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import AMPOptimizer
from fairseq.search import DiverseBeamSearch
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from capsnmt.cli import ConfigurationError
from tests.commands import ON_CPU, hypotheses, scores, succeed, train
from tests.interpreter import ran
from tests.models.test_search import SOURCES, WORDS, assert_same_hypotheses, flagged, generator
from tests.support import PLUGIN, REPO, build, encoder_input, parse


@pytest.mark.parametrize("multiple", [1, 4, 8])
@pytest.mark.parametrize("sentences", [1, 7, 8, 12, 29])
@pytest.mark.parametrize("as_array", [False, True])
def test_no_sentence_is_dropped_from_the_batches(
    sentences: int, multiple: int, as_array: bool
) -> None:
    """The fork drops a last batch that is not a multiple of the required size."""
    indices = np.arange(sentences)[::-1] if as_array else list(range(sentences))[::-1]
    given = {"max_tokens": 27, "required_batch_size_multiple": multiple}
    lengths = np.full(sentences, 3)
    batches = data_utils.batch_by_size(indices, lambda _: 3, num_tokens_vec=lengths, **given)
    assert np.concatenate(batches).tolist() == list(indices)
    assert all(len(batch) * 3 <= 27 for batch in batches)


class Numbers(FairseqDataset):
    def __getitem__(self, number: int) -> int:
        return number

    def __len__(self) -> int:
        return 100

    def num_tokens(self, _: int) -> int:
        return 1

    def collater(self, numbers: List[int]) -> List[int]:
        return numbers


def test_an_epoch_may_be_given_by_its_place() -> None:
    """As fairseq's own; its batches are those of the first."""
    sizes = (4, None, None, False, 1, 1, 1, 0, 0)
    batches = [
        [*FairseqTask(None).get_batch_iterator(Numbers(), *sizes, epoch).next_epoch_itr()]
        for epoch in (1, 3)
    ]
    assert batches[0] == batches[1]


def iterators(devices: int) -> List[EpochBatchIterator]:
    batches = [[number] for number in range(100)]
    shards = [{"num_shards": devices, "shard_id": shard} for shard in range(devices)]
    return [EpochBatchIterator(Numbers(), sum, batches, seed=1, **shard) for shard in shards]


@pytest.mark.parametrize(
    ("before", "passes", "now"), [(1, 30, 1), (1, 30, 2), (1, 60, 2), (4, 5, 2), (8, 10, 1)]
)
def test_an_epoch_goes_on_with_other_devices_where_it_was(
    before: int, passes: int, now: int
) -> None:
    """fairseq's place is a number of batches of one device, of however many."""
    seen: List[int] = []
    for iterator in iterators(before):
        epoch = iterator.next_epoch_itr()
        seen += [next(epoch) for _ in range(passes)]
        state = iterator.state_dict()
    for iterator in iterators(now):
        iterator.load_state_dict(state)
        seen += iterator.next_epoch_itr()
    assert {*seen} == {*range(100)}
    assert len(seen) < 100 + before


@pytest.mark.one_host  # torch 2.2 has no scaler for a CPU
@pytest.mark.parametrize("scale", [1, 2**16])
@pytest.mark.parametrize("name", ["adam", "fused_adam"])
def test_the_scale_of_the_loss_does_not_change_the_update(
    name: str, scale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--amp, here with the scaler of a CPU: gradients of 1e-5 move a parameter by the rate."""
    scaler = functools.partial(torch.amp.GradScaler, "cpu")
    monkeypatch.setattr(torch.cuda.amp, "GradScaler", scaler)
    flags = ("--optimizer", name, "--lr", "0.001", "--adam-eps", "1e-9", "--fp16-init-scale", scale)
    args = parse("capsnmt_transformer", "--amp", *map(str, flags))
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimizer = AMPOptimizer.build_optimizer(convert_namespace_to_omegaconf(args), [parameter])
    for factor in (1e-5, float("inf"), 1e-5):  # the second update overflows
        optimizer.zero_grad()
        optimizer.backward((parameter * factor).sum())
        optimizer.multiply_grads(0.5)
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
    torch.testing.assert_close(parameter.data, torch.full((4,), -0.002), rtol=0.01, atol=0)


def test_gradients_on_a_cpu_are_clipped_there_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no numbers: it is another device of torch."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "meta")
    params = [torch.nn.Parameter(torch.zeros(2)) for _ in "ab"]
    sum(p.sum() for p in params).backward()
    assert utils.clip_grad_norm_(params, 1.0).item() == pytest.approx(2)
    torch.testing.assert_close(params[1].grad, torch.full((2,), 0.5))


def test_a_training_by_several_processes_is_checked_on_their_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """fairseq's wrapper moves the model there; here to a device that is not that of the checks."""
    monkeypatch.setattr(Trainer, "use_distributed_wrapper", True)
    monkeypatch.setattr(models, "DistributedFairseqModel", lambda _, model, **__: model.to("meta"))
    given = ("capsnmt_transformer", "--autocast", "bf16")
    cfg = convert_namespace_to_omegaconf(parse(*given, "--cpu"))
    with pytest.raises(ConfigurationError, match="device type meta is not supported"):
        Trainer(cfg, None, build(*given), None)


@pytest.mark.parametrize("numbers", [[3, 2, 1, 0], [70, 9, 5, 8]])
def test_groups_of_hypotheses_differ_from_those_of_their_own_sentence(numbers: List[int]) -> None:
    """The fork took the number of a sentence in the data for its row in the batch."""
    found, expected = (
        generator([flagged()], 4, search_strategy=DiverseBeamSearch(WORDS, 2, 0.5)).generate(
            [], {"net_input": encoder_input(SOURCES), "id": ids}
        )
        for ids in (torch.tensor(numbers), None)
    )
    assert_same_hypotheses(found, expected)


def other_host() -> str:
    """Return the interpreter of the other host's environment, made by scripts/test.sh."""
    environments = {REPO / ".venv", REPO / ".venv-stock"} - {Path(sys.prefix)}
    others = [each / "bin/python" for each in environments if (each / "installed").exists()]
    if len(others) != 1:
        pytest.skip("NOT TESTED across hosts: run scripts/test.sh, then with --host stock")
    return str(others[0])


# At night: the formats are those of the pinned hosts, and each command of the other one is a fresh
# interpreter. It needs both environments, and is the same from either.
@pytest.mark.nightly
@pytest.mark.system
@pytest.mark.one_host
@pytest.mark.parametrize("trainer", ["this", "other"])
def test_a_checkpoint_of_one_host_generates_the_same_on_the_other(
    trainer: str, corpus: Path, tmp_path: Path
) -> None:
    hosts = {"this": sys.executable, "other": other_host()}
    train(corpus / "bin", tmp_path, "transformer_em_routing_tiny", 4, python=hosts[trainer])
    this, other = (
        succeed(
            "fairseq_cli.generate",
            *(corpus / "bin", "--user-dir", PLUGIN, "--path", tmp_path / "checkpoint_last.pt"),
            *ON_CPU,
            python=each,
        )
        for each in hosts.values()
    )
    assert len(hypotheses(this)) == 8
    assert hypotheses(this) == hypotheses(other)
    assert scores(this) == pytest.approx(scores(other), abs=2e-4)


@pytest.mark.system
@pytest.mark.one_host
@pytest.mark.parametrize(
    ("fake", "message"),
    [
        (None, "fairseq is not installed: .*pip install"),
        ("raise ValueError('mutable default')", "cannot be imported on Python .*mutable default"),
        ("__version__ = '0.9.0'", "fairseq 0.9.0 is not supported: .*pip install"),
    ],
    ids=["missing", "broken", "old"],
)
def test_a_host_that_cannot_work_is_one_line_with_the_fix(
    fake: str, message: str, tmp_path: Path
) -> None:
    """In a fresh interpreter, where the fake hides the real fairseq."""
    hide = "importlib.util.find_spec = lambda name: None;" if fake is None else ""
    (tmp_path / "fairseq.py").write_text(fake or "", "utf-8")
    program = f"import importlib.util; {hide} import capsnmt.plugin"
    done = ran([sys.executable, "-c", program], REPO, PYTHONPATH=f"{tmp_path}{os.pathsep}{REPO}")
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith("ImportError: capsnmt: ")
    assert re.search(message, last)
