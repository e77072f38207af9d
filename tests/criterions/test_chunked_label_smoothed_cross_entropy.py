"""The chunked criterion is fairseq's: same values, gradients and logs for every architecture."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import pytest
import torch
import torch.distributed
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.distributed import ModuleProxyWrapper
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from capsnmt.criterions import ChunkedLabelSmoothedCrossEntropyCriterion
from capsnmt.criterions.chunked_label_smoothed_cross_entropy import obstacle
from tests.criterions.samples import SAMPLE, gradients, train
from tests.support import (
    TASK,
    assert_every_parameter_learns,
    build_system,
    every_system,
)

Outcome = Tuple[torch.Tensor, Any, Dict[str, Any], Dict[str, torch.Tensor]]


def theirs(sentence_avg: bool = False, smoothing: float = 0.1, **settings: Any) -> nn.Module:
    return LabelSmoothedCrossEntropyCriterion(TASK, sentence_avg, smoothing, **settings)


def ours(sentence_avg: bool = False, smoothing: float = 0.1, **settings: Any) -> nn.Module:
    settings.setdefault("loss_chunk_tokens", 3)
    return ChunkedLabelSmoothedCrossEntropyCriterion(TASK, sentence_avg, smoothing, **settings)


def outcome(criterion: nn.Module, model: nn.Module, reduce: bool = True) -> Outcome:
    """Loss, sample size and logs, and the gradients in training; the seed decides dropout."""
    torch.manual_seed(4)
    loss, size, logs = criterion(model, SAMPLE, reduce=reduce)
    found = gradients(model, loss.sum()) if model.training else {}
    return loss.detach(), size, logs, found


def untied(model: nn.Module) -> nn.Module:
    """Give the projection a matrix of its own."""
    decoder = model.decoder
    decoder.output_projection.weight = nn.Parameter(decoder.output_projection.weight.detach() * 2)
    return model


def assert_equal(measured: Outcome, expected: Outcome) -> None:
    """To the rounding of fairseq's loss, which is fp32 whatever the model."""
    torch.testing.assert_close(measured, expected, rtol=1e-4, atol=1e-5, check_dtype=False)
    assert list(measured[2]) == list(expected[2])  # fairseq sums logged values by position


@pytest.mark.parametrize("training", [True, False], ids=["training", "validation"])
@every_system
def test_every_system_has_fairseqs_loss_gradients_and_logs(name: str, training: bool) -> None:
    model = build_system(name).double().train(training)  # routing would amplify fp32's rounding
    settings = {"report_accuracy": True}
    with torch.set_grad_enabled(training):
        assert_equal(outcome(ours(**settings), model), outcome(theirs(**settings), model))
    if training:
        assert_every_parameter_learns(model)


@pytest.mark.parametrize("chunk", [4, 512])
@pytest.mark.parametrize(
    "settings",
    [
        {"sentence_avg": True},
        {"smoothing": 0.0},
        {"ignore_prefix_size": 2, "report_accuracy": True},
        {"ignore_prefix_size": 6},
    ],
    ids=str,
)
def test_every_flag_of_fairseqs_criterion_has_the_same_effect(
    settings: Dict[str, Any], chunk: int
) -> None:
    model = train("--dropout", "0.1")
    assert_equal(
        outcome(ours(loss_chunk_tokens=chunk, **settings), model),
        outcome(theirs(**settings), model),
    )


@pytest.mark.usefixtures("bf16_machine")
def test_under_autocast_the_projection_is_bf16_as_fairseqs() -> None:
    model = train("--autocast", "bf16")
    outcomes = outcome(ours(), model), outcome(theirs(), model)
    likelihoods = [logs["nll_loss"] for _, _, logs, _ in outcomes]
    torch.testing.assert_close(*likelihoods, rtol=1e-6, atol=0)  # 1e-4 if the product were fp32
    for name, expected in outcomes[1][3].items():
        assert outcomes[0][3][name].dtype == torch.float32
        error = (outcomes[0][3][name] - expected).norm()
        assert error <= 0.02 * expected.norm() + 5e-3, name


def test_the_loss_of_a_projection_of_its_own() -> None:
    model = untied(train())
    assert obstacle(model) is None
    assert_equal(outcome(ours(), model), outcome(theirs(), model))
    assert_every_parameter_learns(model)


def test_stock_transformers_train_with_it_too() -> None:
    model = train(arch="transformer")
    assert obstacle(model) is None
    assert_equal(outcome(ours(), model), outcome(theirs(), model))


@pytest.fixture
def one_worker(tmp_path: Path) -> Iterator[None]:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_worker")
@pytest.mark.parametrize(("tied", "find_unused"), [(True, True), (True, False), (False, True)])
def test_torchs_data_parallel_gets_every_gradient_once(tied: bool, find_unused: bool) -> None:
    model = train() if tied else untied(train())
    expected = outcome(theirs(), model)
    for parameter in model.parameters():
        parameter.grad = None
    parallel = DistributedDataParallel(model, find_unused_parameters=find_unused)
    wrapped = ModuleProxyWrapper(parallel)
    loss, size, logs = ours()(wrapped, SAMPLE)
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    assert_equal((loss.detach(), size, logs, found), expected)


def with_bias(model: nn.Module) -> nn.Module:
    projection = nn.Linear(16, model.decoder.output_projection.out_features)
    model.decoder.output_projection = projection
    return model


def test_other_projections_keep_fairseqs_path_with_one_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, criterion = with_bias(train()), ours(report_accuracy=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            measured = outcome(criterion, model)
    assert_equal(measured, outcome(theirs(report_accuracy=True), model))
    (record,) = caplog.records
    assert record.getMessage().endswith("its output projection is not a plain matrix")


def test_unreduced_losses_are_fairseqs_own() -> None:
    model = train()
    torch.testing.assert_close(
        outcome(ours(), model, reduce=False), outcome(theirs(), model, reduce=False)
    )
