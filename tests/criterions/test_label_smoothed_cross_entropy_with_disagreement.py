"""The criterion against the paper's sums over pairs of heads, and in fairseq's bookkeeping."""

import functools
import math
from typing import Any, Dict, List, Tuple

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch import Tensor, nn

from capsnmt.criterions import ChunkedLabelSmoothedCrossEntropyCriterion
from capsnmt.criterions.chunked_label_smoothed_cross_entropy import (
    ChunkedLabelSmoothedCrossEntropyCriterionConfig,
)
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.disagreement import TERMS, DisagreementRecord
from tests.criterions.samples import (
    ALL,
    SAMPLE,
    SOURCES,
    TARGETS,
    criterion,
    data_parallel,
    gradients,
    logged,
    make_sample,
    term_of_pairs,
    train,
)
from tests.support import DROP, PAD, TASK, sentences


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Dict[Tuple[str, str], List[Tensor]]:
    """The tensors that every attention gives to be measured, by attention and term."""
    handed: Dict[Tuple[str, str], List[Tensor]] = {}
    add = DisagreementRecord.add

    def spy(self: Any, role: str, values: Tensor, weights: Any, heads: Tensor) -> None:
        for term, x in zip(TERMS, (values, weights, heads, heads, heads)):
            handed.setdefault((role, term), []).append(x)
        add(self, role, values, weights, heads)

    monkeypatch.setattr(DisagreementRecord, "add", spy)
    return handed


@pytest.mark.one_host  # tests/frozen/golden/criterions.txt has the terms, the same on both
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("term", TERMS)
def test_the_penalty_and_its_gradient_equal_the_papers_sums_over_the_real_tokens(
    term: str, attention: str, seen: Dict
) -> None:
    """Whatever the batch is divided by, and on either side of the sources' padding."""
    model = train().double()
    sample = make_sample(SOURCES, TARGETS, left_pad=term != "position")
    ours = functools.partial(
        criterion, term == "output", disagreement=term, disagreement_attention=attention
    )
    loss, size, logs = ours(disagreement_weight=0.7)(model, sample)
    source = sample["net_input"]["src_tokens"].ne(PAD)
    target = sample["net_input"]["prev_output_tokens"].ne(PAD)
    of_source = attention == "enc-self" or (attention, term) == ("enc-dec", "subspace")
    layers = seen[attention, term]
    assert len(layers) == 2
    expected = term_of_pairs(layers, source if of_source else target, term)
    torch.testing.assert_close(logs[f"disagreement_{term}"], expected.detach() * size)
    plain, _, plain_logs = ours(disagreement_weight=0)(model, sample)
    torch.testing.assert_close(loss, plain + 0.7 * size * expected)
    torch.testing.assert_close(logs["loss"], loss.detach())
    assert torch.equal(logs["nll_loss"], plain_logs["nll_loss"])
    measured = gradients(model, loss)
    torch.testing.assert_close(measured, gradients(model, plain + 0.7 * size * expected))
    unregularised = gradients(model, plain)
    assert any(not torch.allclose(unregularised[name], measured[name]) for name in measured)


@pytest.mark.parametrize(
    ("plain_criterion", "chunk"),
    [(LabelSmoothedCrossEntropyCriterion, 0), (ChunkedLabelSmoothedCrossEntropyCriterion, 512)],
)
def test_weight_zero_is_label_smoothed_cross_entropy(plain_criterion: Any, chunk: int) -> None:
    model = train("--dropout", "0.1")
    cfg = ChunkedLabelSmoothedCrossEntropyCriterionConfig(
        sentence_avg=False, label_smoothing=0.1, report_accuracy=True
    )
    plain = plain_criterion.build_criterion(cfg, TASK)
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


@pytest.mark.parametrize("before", [True, False])
def test_a_teacher_that_is_asked_around_the_pass_is_not_penalised(before: bool) -> None:
    student, teacher, ours = train(), train().eval(), criterion()
    expected, compute = ours(student, SAMPLE)[2], ours.compute_loss

    def ask(*_: Any) -> None:
        with torch.no_grad():
            teacher.encoder(SAMPLE["net_input"]["src_tokens"].flip(1))

    if before:
        student.register_forward_pre_hook(ask)
    else:
        ours.compute_loss = lambda *args, **more: (ask(), compute(*args, **more))[1]
    torch.testing.assert_close(ours(student, SAMPLE)[2], expected)


@pytest.mark.parametrize("sentence_avg", [False, True])
def test_accumulated_batches_are_one_batch_and_the_log_shows_its_mean(sentence_avg: bool) -> None:
    """To rounding where sources are as long as their targets; see the criterion's docstring."""
    model = train().double()
    lines, ours = sentences(2, 6, 3, 5), criterion(sentence_avg, **ALL)
    halves = [
        ours(model, make_sample(lines[half], lines[half])) for half in (slice(0, 2), slice(2, 4))
    ]
    together, size, logs = ours(model, make_sample(lines, lines))
    assert sum(half[1] for half in halves) == size
    expected = gradients(model, together)
    torch.testing.assert_close(gradients(model, sum(half[0] for half in halves)), expected)
    shown = logged(ours, [[half[2] for half in halves]])
    assert shown == pytest.approx(logged(ours, [[logs]]), abs=1e-3)
    assert ours.logging_outputs_can_be_summed()
    summed = {key: sum(half[2][key] for half in halves) for key in logs}
    assert logged(ours, [[summed]]) == pytest.approx(shown)
    term = float(logs["disagreement_output"]) / size
    assert shown["disagreement_output"] == pytest.approx(term, abs=1e-3)
    assert 0.01 < term < 3  # of three attentions
    in_bits = together.item() / size / math.log(2)
    assert shown["loss"] == pytest.approx(in_bits, abs=1e-3)


def test_the_mean_is_over_the_layers_that_ran_and_workers_log_the_same_names(seen: Dict) -> None:
    model = train(*DROP).double()
    ours, logs, ran = criterion(**ALL), [], set()
    source = SAMPLE["net_input"]["src_tokens"].ne(PAD)
    for seed in range(12):
        seen.clear()
        torch.manual_seed(seed)
        loss, size, log = ours(model, SAMPLE)
        assert loss.isfinite()
        layers = seen.get(("enc-self", "output"), [])
        expected = term_of_pairs(layers, source, "output") if layers else loss * 0
        torch.testing.assert_close(log["disagreement_output_enc_self"], expected.detach() * size)
        logs.append([(name, type(value)) for name, value in log.items()])
        ran.add(len(layers))
    assert ran == {0, 1, 2}
    assert all(log == logs[0] for log in logs)


def test_with_cross_self_attention_the_decoders_values_are_of_both_sides(seen: Dict) -> None:
    model = train("--cross-self-attention", "--no-cross-attention").double()
    settings = {"disagreement": "subspace", "disagreement_attention": "dec-self"}
    _, size, logs = criterion(**settings)(model, SAMPLE)
    net_input = SAMPLE["net_input"]
    real = torch.cat([net_input["src_tokens"], net_input["prev_output_tokens"]], dim=1).ne(PAD)
    expected = term_of_pairs(seen["dec-self", "subspace"], real, "subspace")
    torch.testing.assert_close(logs["disagreement_subspace"], expected.detach() * size)


@pytest.mark.parametrize(("update", "part"), [(0, 0), (3, 0), (4, 0.2), (8, 1), (9, 1)])
def test_a_late_term_ramps_up_to_the_weight_of_an_immediate_one(update: int, part: float) -> None:
    settings = {"disagreement": "output", "disagreement_weight": 0.5}
    late = criterion(**settings, disagreement_start_update=4, disagreement_ramp_updates=5)
    model = train()
    plain = criterion(**{**settings, "disagreement_weight": 0})(model, SAMPLE)[0]
    immediate = criterion(**settings)(model, SAMPLE)[0]
    model.set_num_updates(update)
    wrapped = nn.Module()  # as torch's, which has no attributes of the model
    wrapped.module, wrapped.forward = model, model.forward
    wrapped.get_normalized_probs = model.get_normalized_probs
    loss, size, logs = late(wrapped, SAMPLE)
    if part == 0:
        assert torch.equal(loss, plain)
    torch.testing.assert_close(loss, plain + part * (immediate - plain))
    assert logs["disagreement_weight"] == pytest.approx(0.5 * part * size)


@pytest.mark.usefixtures("one_worker")
def test_what_torchs_data_parallel_would_call_unused_is_refused_at_once() -> None:
    """Where layer dropout leaves no decoder, only the terms of the encoder use the encoder."""
    wrapped = data_parallel(train("--decoder-layerdrop", "0.1"), find_unused=True)
    of_encoder = {"disagreement": "output", "disagreement_attention": "enc-self"}
    with pytest.raises(SystemExit, match="add --ddp-backend legacy_ddp"):
        criterion(**of_encoder)(wrapped, SAMPLE)
    criterion(**of_encoder, disagreement_weight=0)(wrapped, SAMPLE)[0].backward()
    kept = data_parallel(train(), find_unused=True)
    criterion(**of_encoder)(kept, SAMPLE)[0].backward()
