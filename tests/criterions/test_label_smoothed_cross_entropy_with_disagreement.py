"""The criterion against the paper's sums over pairs of heads, and in fairseq's bookkeeping."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics
from torch import Tensor

from capsnmt.criterions import (
    ChunkedLabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyWithDisagreementCriterion,
)
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.disagreement import TERMS, DisagreementRecord
from tests.criterions.samples import (
    ALL,
    SAMPLE,
    SOURCES,
    TARGETS,
    criterion,
    gradients,
    make_sample,
    term_of_pairs,
    train,
)
from tests.support import (
    PAD,
    TASK,
    sentences,
)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Dict[Tuple[str, str], List[Tensor]]:
    """The tensors that every attention gives to be measured, by attention and term."""
    handed: Dict[Tuple[str, str], List[Tensor]] = {}
    add = DisagreementRecord.add

    def spy(self: Any, role: str, values: Tensor, weights: Any, heads: Tensor) -> None:
        for term, x in zip(TERMS, (values, weights, heads)):
            handed.setdefault((role, term), []).append(x)
        add(self, role, values, weights, heads)

    monkeypatch.setattr(DisagreementRecord, "add", spy)
    return handed


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("term", TERMS)
def test_the_penalty_and_its_gradient_equal_the_papers_sums_over_the_real_tokens(
    term: str, attention: str, seen: Dict
) -> None:
    model = train().double()
    settings = {"disagreement": term, "disagreement_attention": attention}
    loss, size, logs = criterion(disagreement_weight=0.7, **settings)(model, SAMPLE)
    source = SAMPLE["net_input"]["src_tokens"].ne(PAD)
    target = SAMPLE["net_input"]["prev_output_tokens"].ne(PAD)
    of_source = attention == "enc-self" or (attention, term) == ("enc-dec", "subspace")
    layers = seen[attention, term]
    assert len(layers) == 2
    expected = term_of_pairs(layers, source if of_source else target, overlaps=term == "position")
    torch.testing.assert_close(logs[f"disagreement_{term}"], expected.detach() * size)
    plain, _, plain_logs = criterion(disagreement_weight=0, **settings)(model, SAMPLE)
    torch.testing.assert_close(loss, plain + 0.7 * size * expected)
    torch.testing.assert_close(logs["loss"], loss.detach())
    assert torch.equal(logs["nll_loss"], plain_logs["nll_loss"])
    measured = gradients(model, loss)
    torch.testing.assert_close(measured, gradients(model, plain + 0.7 * size * expected))
    assert any(
        not torch.allclose(gradient, measured[name])
        for name, gradient in gradients(
            model, criterion(disagreement_weight=0, **settings)(model, SAMPLE)[0]
        ).items()
    )


def test_padding_on_either_side_never_counts() -> None:
    model = train("--no-token-positional-embeddings").double()
    rows = []
    for longest in (6, 9):
        for left_pad in (True, False):
            lines = [*SOURCES[:1], sentences(longest, seed=3)[0]]
            sample = make_sample(lines, TARGETS[:2], left_pad)
            for key, values in sample["net_input"].items():
                sample["net_input"][key] = values[:1]  # the longer sentence only padded the shorter
            sample.update(target=sample["target"][:1], ntokens=6)
            logs = criterion(**ALL)(model, sample)[2]
            rows.append([float(v) for k, v in logs.items() if k.startswith("disagreement")])
    for row in rows[1:]:
        assert row == pytest.approx(rows[0])


@pytest.mark.parametrize(
    ("plain_criterion", "chunk"),
    [(LabelSmoothedCrossEntropyCriterion, 0), (ChunkedLabelSmoothedCrossEntropyCriterion, 512)],
)
def test_weight_zero_is_label_smoothed_cross_entropy(plain_criterion: Any, chunk: int) -> None:
    model = train("--dropout", "0.1")
    plain = plain_criterion(TASK, False, 0.1, report_accuracy=True)
    settings = {**ALL, "disagreement": "subspace,output", "disagreement_weight": 0}
    ours = criterion(report_accuracy=True, loss_chunk_tokens=chunk, **settings)
    results = []
    for chosen in (plain, ours):
        torch.manual_seed(5)
        loss, size, logs = chosen(model, SAMPLE)
        logs = {k: v for k, v in logs.items() if not k.startswith("disagreement_")}
        results.append((loss.detach(), size, logs, gradients(model, loss)))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_validation_measures_and_logs_but_reports_the_baselines_loss() -> None:
    model = train()
    training_logs = criterion(**ALL)(model, SAMPLE)[2]
    model.eval()
    plain = LabelSmoothedCrossEntropyCriterion(TASK, False, 0.1)(model, SAMPLE)
    loss, size, logs = criterion(**ALL)(model, SAMPLE)
    torch.testing.assert_close((loss, logs["loss"]), (plain[0], plain[2]["loss"]))
    for name, value in training_logs.items():
        if name != "loss":
            torch.testing.assert_close(logs[name], value)
    assert training_logs["loss"] > logs["loss"] + size / 16  # the position term is at least 1 / L


@pytest.mark.parametrize("sentence_avg", [False, True])
def test_lambda_means_the_same_whatever_the_batch_is_divided_by(sentence_avg: bool) -> None:
    """Two equal sentences are twice the loss of one and twice the sample size."""
    model = train().double()
    ours = criterion(sentence_avg, **ALL)
    one = ours(model, make_sample(SOURCES[:1], TARGETS[:1]))
    two = ours(model, make_sample(SOURCES[:1] * 2, TARGETS[:1] * 2))
    assert two[1] == 2 * one[1]
    torch.testing.assert_close(two[0], 2 * one[0])


def reduced(logging_outputs: List[Dict[str, Any]]) -> Dict[str, float]:
    with metrics.aggregate(new_root=True) as aggregated:
        LabelSmoothedCrossEntropyWithDisagreementCriterion.reduce_metrics(logging_outputs)
    return {name: float(value) for name, value in aggregated.get_smoothed_values().items()}


def test_accumulated_batches_are_one_batch() -> None:
    """To rounding where sources are as long as their targets; see the criterion's docstring."""
    model = train().double()
    lines, ours = sentences(2, 6, 3, 5), criterion(**ALL)
    halves = [
        ours(model, make_sample(lines[half], lines[half])) for half in (slice(0, 2), slice(2, 4))
    ]
    together, size, logs = ours(model, make_sample(lines, lines))
    assert sum(half[1] for half in halves) == size
    expected = gradients(model, together)
    torch.testing.assert_close(gradients(model, sum(half[0] for half in halves)), expected)
    assert reduced([half[2] for half in halves]) == pytest.approx(reduced([logs]), abs=1e-3)


def test_the_log_shows_the_mean_and_the_loss_in_its_usual_unit() -> None:
    model = train().double()
    parts = [make_sample(SOURCES[i : i + 1], TARGETS[i : i + 1]) for i in range(3)]
    ours, results = criterion(), [criterion()(model, part) for part in parts]
    sizes = [size for _, size, _ in results]
    shown = reduced([logs for _, _, logs in results])
    mean = sum(float(logs["disagreement_output"]) for _, _, logs in results) / sum(sizes)
    assert shown["disagreement_output"] == pytest.approx(mean, abs=5e-4)
    assert 0.01 < mean < 1
    loss = sum(float(loss) for loss, _, _ in results) / sum(sizes) / torch.tensor(2.0).log()
    assert shown["loss"] == pytest.approx(float(loss), abs=5e-4)
    assert ours.logging_outputs_can_be_summed()
    keys = [logs.keys() for _, _, logs in results]
    summed = {key: sum(logs[key] for _, _, logs in results) for key in keys[0]}
    assert reduced([summed]) == pytest.approx(shown)


def test_workers_log_the_same_names_and_types_whichever_layers_were_dropped() -> None:
    model = train("--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5")
    ours, logs, zeros = criterion(**ALL), [], 0
    for seed in range(12):
        torch.manual_seed(seed)
        loss, _, log = ours(model, SAMPLE)
        assert loss.isfinite()
        zeros += int(log["disagreement_output_enc_self"] == 0)
        logs.append([(name, type(value)) for name, value in log.items()])
    assert all(log == logs[0] for log in logs)
    assert 0 < zeros < 12  # once no layer of the encoder ran, and once one did


def test_the_mean_is_over_the_layers_that_ran(seen: Dict) -> None:
    model = train("--encoder-layerdrop", "0.5").double()
    while len(seen.get(("enc-self", "output"), [])) != 1:
        seen.clear()
        _, size, logs = criterion()(model, SAMPLE)
    source = SAMPLE["net_input"]["src_tokens"].ne(PAD)
    expected = term_of_pairs(seen["enc-self", "output"], source, overlaps=False)
    torch.testing.assert_close(logs["disagreement_output"], expected.detach() * size)


def test_with_cross_self_attention_the_decoders_values_are_of_both_sides(seen: Dict) -> None:
    model = train("--cross-self-attention", "--no-cross-attention").double()
    settings = {"disagreement": "subspace", "disagreement_attention": "dec-self"}
    _, size, logs = criterion(**settings)(model, SAMPLE)
    net_input = SAMPLE["net_input"]
    real = torch.cat([net_input["src_tokens"], net_input["prev_output_tokens"]], dim=1).ne(PAD)
    expected = term_of_pairs(seen["dec-self", "subspace"], real, overlaps=False)
    torch.testing.assert_close(logs["disagreement_subspace"], expected.detach() * size)


@pytest.mark.parametrize(("update", "part"), [(0, 0), (3, 0), (4, 0.2), (8, 1), (9, 1)])
def test_a_late_term_ramps_up_to_the_weight_of_an_immediate_one(update: int, part: float) -> None:
    settings = {"disagreement": "output", "disagreement_weight": 0.5}
    late = criterion(**settings, disagreement_start_update=4, disagreement_ramp_updates=5)
    model = train()
    plain = criterion(**{**settings, "disagreement_weight": 0})(model, SAMPLE)[0]
    immediate = criterion(**settings)(model, SAMPLE)[0]
    model.set_num_updates(update)
    loss, size, logs = late(model, SAMPLE)
    if part == 0:
        assert torch.equal(loss, plain)
    torch.testing.assert_close(loss, plain + part * (immediate - plain))
    assert logs["disagreement_weight"] == pytest.approx(0.5 * part * size)
