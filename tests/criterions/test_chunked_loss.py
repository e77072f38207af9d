"""The chunked loss against its equations, word by word, and as fairseq's criterion."""

import functools
import logging
import math
from typing import Any, Callable, Dict, Tuple

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    label_smoothed_nll_loss,
)
from fairseq.distributed import ModuleProxyWrapper
from torch import Tensor, nn

from capsnmt.criterions import ChunkedLabelSmoothedCrossEntropyCriterion
from capsnmt.criterions import chunked_cross_entropy as module
from capsnmt.criterions.chunked_cross_entropy import chunked_cross_entropy
from capsnmt.criterions.chunked_label_smoothed_cross_entropy import (
    ChunkedLabelSmoothedCrossEntropyCriterionConfig,
    obstacle,
)
from tests.counting import Operations
from tests.criterions.samples import SAMPLE, data_parallel, gradients, label_smoothed_loss, train
from tests.support import EVERY_COMMIT, SYSTEMS, TASK, build_system

WORDS, DIM, PADDING = 11, 6, 1


def example(tokens: int = 7, dtype: torch.dtype = torch.float64) -> Tuple[Tensor, Tensor, Tensor]:
    """Features, projection and target; two of the tokens are padding."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(tokens, DIM, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(WORDS, DIM, generator=generator).to(dtype).requires_grad_()
    target = torch.randint(2, WORDS, (tokens,), generator=generator)
    target[[1, -1]] = PADDING
    return features, weight, target


@pytest.mark.parametrize(
    ("drops", "multiple"), [(True, 1), (True, 4), (False, 1)], ids=["cpu", "cpu_half", "gpu"]
)
@pytest.mark.parametrize(("chunk", "epsilon"), [(1, 0.0), (3, 0.1), (5, 0.1), (100, 0.0)])
def test_values_and_gradients_equal_the_sums_over_words(
    chunk: int, epsilon: float, drops: bool, multiple: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "drops_padding", lambda device: drops)
    monkeypatch.setattr(module, "rows_multiple", lambda precision: multiple)
    features, weight, target = example()
    ours = chunked_cross_entropy(features, weight, target, epsilon, PADDING, chunk, True)
    loss, nll = label_smoothed_loss(features, weight, target, epsilon, PADDING)
    assert (ours.loss.item(), ours.nll.item()) == pytest.approx((loss.item(), nll.item()))
    right = (features @ weight.t()).argmax(-1).eq(target) & target.ne(PADDING)
    assert int(ours.correct) == int(right.sum())
    for cotangent in (1.0, -0.3):
        measured, expected = (
            torch.autograd.grad(x * cotangent, [features, weight], retain_graph=True)
            for x in (ours.loss, loss)
        )
        torch.testing.assert_close(measured, expected)


@pytest.mark.parametrize(
    ("dtype", "tokens"), [(torch.float32, 10), (torch.bfloat16, 64), (torch.float16, 64)], ids=str
)
def test_a_cpu_scores_the_real_tokens_in_half_precision_up_to_a_multiple(
    dtype: torch.dtype, tokens: int
) -> None:
    with Operations() as operations:
        chunked_cross_entropy(*example(12, dtype), 0.1, PADDING, 100)
    assert operations.largest() == tokens * WORDS


@pytest.mark.parametrize("frozen", ["features", "weight", "both"])
def test_a_frozen_input_gets_no_gradient_and_changes_no_other(frozen: str) -> None:
    features, weight, target = example()
    both = chunked_cross_entropy(features, weight, target, 0.1, PADDING, 3)
    both.loss.backward()
    expected = features.grad, weight.grad
    features, weight, target = example()
    features.requires_grad_(frozen == "weight")
    weight.requires_grad_(frozen == "features")
    part = chunked_cross_entropy(features, weight, target, 0.1, PADDING, 3)
    assert torch.equal(part.loss, both.loss)
    assert part.loss.requires_grad == (frozen != "both")
    if frozen != "both":
        part.loss.backward()
    for tensor, gradient in zip((features, weight), expected):
        assert (tensor.grad is not None) == tensor.requires_grad
        if tensor.requires_grad:
            torch.testing.assert_close(tensor.grad, gradient)


@pytest.mark.parametrize("drops", [True, False], ids=["as_on_cpu", "as_on_gpu"])
@pytest.mark.parametrize("tokens", [2, 0])
def test_padding_alone_gives_zero_with_zero_gradients(
    tokens: int, drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "drops_padding", lambda device: drops)
    features, weight, target = (x[:tokens] if i != 1 else x for i, x in enumerate(example()))
    loss, nll, correct = chunked_cross_entropy(
        features, weight, target.fill_(PADDING), 0.1, PADDING, 3, count_correct=True
    )
    assert (loss.item(), nll.item(), correct.item()) == (0, 0, 0)
    loss *= 0  # as fairseq does with a dummy batch
    for gradient in torch.autograd.grad(loss, [features, weight]):
        assert not gradient.any()


def test_scores_far_apart_stay_finite_and_exact() -> None:
    features, weight, target = example()
    features, weight = features.detach() * 1e4, weight.detach()
    target = (features @ weight.t()).argmin(-1)  # the least likely word
    loss = chunked_cross_entropy(features.float(), weight.float(), target, 0.0, -1, 3).loss
    expected = F.cross_entropy(features @ weight.t(), target, reduction="sum")
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
    assert math.isfinite(loss.item())


@pytest.mark.parametrize("training", [True, False])
def test_the_scores_of_all_tokens_never_exist_at_once(training: bool) -> None:
    features = torch.randn(200, 4, requires_grad=training)
    weight = torch.randn(50, 4, requires_grad=training)
    target = torch.randint(2, 50, (200,))
    with Operations() as operations:
        loss = chunked_cross_entropy(features, weight, target, 0.1, PADDING, 16, True).loss
        if training:
            loss.backward()
    assert operations.largest() == max(16 * 50, features.numel())


@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "half"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_errs_at_most_twice_as_much_as_fairseqs_loss(
    dtype: torch.dtype, autocast: bool
) -> None:
    features = torch.randn(64, 32)
    weight = torch.randn(300, 32) * 32**-0.5
    target = torch.randint(2, 300, (64,))

    def plain(features: Tensor, weight: Tensor) -> Tensor:
        log_probs = F.log_softmax(F.linear(features, weight), dim=-1, dtype=torch.float32)
        return label_smoothed_nll_loss(log_probs, target, 0.1)[0]

    def chunked(features: Tensor, weight: Tensor) -> Tensor:
        return chunked_cross_entropy(features, weight, target, 0.1, PADDING, 24).loss

    def run(function: Any, dtype: torch.dtype, cast: Any = None) -> Tuple[Tensor, ...]:
        inputs = [x.detach().to(dtype).requires_grad_() for x in (features, weight)]
        with torch.autocast("cpu", dtype=cast or torch.bfloat16, enabled=cast is not None):
            loss = function(*inputs)
        gradients = torch.autograd.grad(loss, inputs)
        for gradient, x in zip(gradients, inputs):
            assert gradient.dtype == x.dtype
        assert loss.dtype == torch.float32
        return (loss.detach(), *(gradient.float() for gradient in gradients))

    exact = run(plain, torch.float32)
    low = (torch.float32, dtype) if autocast else (dtype,)
    for ours, other, reference in zip(run(chunked, *low), run(plain, *low), exact):
        assert (ours - reference).norm() <= 2 * (other - reference).norm() + 1e-6


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU: the loss is not tested on one")
def test_on_a_gpu_the_host_never_waits_and_the_numbers_are_the_same() -> None:
    expected = None
    for device in ("cpu", "cuda"):
        features, weight, target = (x.detach().to(device) for x in example())
        features.requires_grad_()
        weight.requires_grad_()
        torch.cuda.set_sync_debug_mode("error" if device == "cuda" else "default")
        try:
            ours = chunked_cross_entropy(features, weight, target, 0.1, PADDING, 3, True)
            gradients = torch.autograd.grad(ours.loss, [features, weight])
        finally:
            torch.cuda.set_sync_debug_mode("default")
        measured = [x.detach().cpu() for x in (*ours, *gradients)]
        torch.testing.assert_close(measured, expected or measured)
        expected = measured


Outcome = Tuple[torch.Tensor, Any, Dict[str, Any], Dict[str, torch.Tensor]]


def theirs(sentence_avg: bool = False, smoothing: float = 0.1, **settings: Any) -> nn.Module:
    return LabelSmoothedCrossEntropyCriterion(TASK, sentence_avg, smoothing, **settings)


def ours(sentence_avg: bool = False, smoothing: float = 0.1, **settings: Any) -> nn.Module:
    settings.setdefault("loss_chunk_tokens", 3)
    settings.update(sentence_avg=sentence_avg, label_smoothing=smoothing)
    cfg = ChunkedLabelSmoothedCrossEntropyCriterionConfig(**settings)
    return ChunkedLabelSmoothedCrossEntropyCriterion(TASK, cfg)


def outcome(criterion: nn.Module, model: nn.Module, reduce: bool = True) -> Outcome:
    """Loss, sample size and logs, and the gradients in training; the seed decides dropout."""
    torch.manual_seed(4)
    loss, size, logs = criterion(model, SAMPLE, reduce=reduce)
    found = gradients(model, loss.sum()) if model.training else {}
    return loss.detach(), size, logs, found


def untied(model: nn.Module) -> nn.Module:
    projection = model.decoder.output_projection
    projection.weight = nn.Parameter(projection.weight.detach() * 2)
    return model


def assert_equal(measured: Outcome, expected: Outcome) -> None:
    """To the rounding of fairseq's loss, which is fp32 whatever the model."""
    torch.testing.assert_close(measured, expected, rtol=1e-4, atol=1e-5, check_dtype=False)
    assert list(measured[2]) == list(expected[2])  # fairseq sums logged values by position


# of every architecture they are recorded: tests/frozen/golden/criterions.txt
MODELS: Dict[str, Callable[[], nn.Module]] = {
    **{
        name: lambda name=name: build_system(name).double()  # routing would amplify rounding
        for name in [*SYSTEMS][: EVERY_COMMIT : EVERY_COMMIT - 1]
    },
    "a projection of its own": lambda: untied(train()),
    "fairseq's Transformer": lambda: train(arch="transformer"),
    "fairseq's BART": lambda: train(arch="bart_base"),
}


@pytest.mark.parametrize("training", [True, False], ids=["training", "validation"])
@pytest.mark.parametrize("name", MODELS)
def test_a_system_has_fairseqs_loss_gradients_and_logs(name: str, training: bool) -> None:
    model, settings = MODELS[name]().train(training), {"report_accuracy": True}
    assert obstacle(model) is None
    with torch.set_grad_enabled(training):
        assert_equal(outcome(ours(**settings), model), outcome(theirs(**settings), model))


@pytest.mark.parametrize("chunk", [4, 512])
@pytest.mark.parametrize(
    "settings",
    [
        {"sentence_avg": True, "smoothing": 0.0},
        {"ignore_prefix_size": 2, "report_accuracy": True},
        {"ignore_prefix_size": 6},
    ],
    ids=str,
)
def test_every_flag_of_fairseqs_criterion_has_the_same_effect(
    settings: Dict[str, Any], chunk: int
) -> None:
    model, criterion = train("--dropout", "0.1"), ours(loss_chunk_tokens=chunk, **settings)
    assert_equal(outcome(criterion, model), outcome(theirs(**settings), model))


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


@pytest.mark.usefixtures("one_worker")
@pytest.mark.parametrize(("tied", "find_unused"), [(True, True), (True, False), (False, True)])
def test_torchs_data_parallel_gets_every_gradient_once(tied: bool, find_unused: bool) -> None:
    model = train() if tied else untied(train())
    expected = outcome(theirs(), model)
    for parameter in model.parameters():
        parameter.grad = None
    wrapped = data_parallel(model, find_unused)
    loss, size, logs = ours()(wrapped, SAMPLE)
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    assert_equal((loss.detach(), size, logs, found), expected)


def biased(model: nn.Module) -> None:
    model.decoder.output_projection = nn.Linear(16, len(TASK.target_dictionary))


def replaced(model: nn.Module) -> None:
    """The pass of the projection itself, as other libraries wrap it."""
    projection = model.decoder.output_projection
    original = projection.forward
    projection.forward = lambda x: 2 * original(x)


def scaled(model: nn.Module) -> None:
    """A hook doubles the gradient at the input of the projection."""
    model.decoder.output_projection.register_full_backward_hook(
        lambda _, of_inputs, __: tuple(None if g is None else 2 * g for g in of_inputs)
    )


def double(_: nn.Module, __: Any, found: Any) -> Any:
    """Return twice the scores, as a hook."""
    return 2 * found if isinstance(found, Tensor) else (2 * found[0], *found[1:])


def hooked(path: str) -> Callable[[nn.Module], None]:
    return lambda model: model.get_submodule(path).register_forward_hook(double)


def derived(path: str, method: str = "forward") -> Callable[[nn.Module], None]:
    """Return a change of the class of the model, or of a part: twice the scores."""

    def change(model: nn.Module) -> None:
        def own(self: Any, *inputs: Any, **more: Any) -> Any:
            found = original(self, *inputs, **more)
            return found if more.get("features_only") else double(self, inputs, found)

        part = model.get_submodule(path)
        original = getattr(type(part), method)
        part.__class__ = type("Own", (type(part),), {method: own})

    return change


@pytest.mark.parametrize("arch", ["capsnmt_transformer", "transformer"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (biased, "its output projection is not a plain matrix"),
        (replaced, "its output projection is not a plain matrix"),
        (scaled, "its output projection is not a plain matrix"),
        (hooked("decoder.output_projection"), "its output projection is not a plain matrix"),
        (hooked(""), "a hook waits for the output of the model or its decoder"),
        (hooked("decoder"), "a hook waits for the output of the model or its decoder"),
        (
            derived("", "get_normalized_probs"),
            "Own is not fairseq's Transformer or a model of capsnmt",
        ),
        (derived(""), "Own is not fairseq's Transformer or a model of capsnmt"),
        (derived("decoder"), "Own is not the decoder of fairseq's Transformer or of capsnmt"),
    ],
)
def test_other_models_keep_fairseqs_path_with_one_message(
    change: Callable[[nn.Module], None], reason: str, arch: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, criterion = train(arch=arch), ours(report_accuracy=True)
    change(model)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            measured = outcome(criterion, model)
    assert_equal(measured, outcome(theirs(report_accuracy=True), model))
    (record,) = caplog.records
    assert record.getMessage().endswith(reason)


def test_a_hook_of_fairseqs_wrapper_gets_the_output_of_the_model() -> None:
    wrapped = ModuleProxyWrapper(nn.DataParallel(train()))
    wrapped.register_forward_hook(lambda _, __, output: (output[0].sin(), *output[1:]))
    assert_equal(outcome(ours(), wrapped), outcome(theirs(), wrapped))


@pytest.mark.parametrize("name", ["compute_loss", "get_lprobs_and_target", "compute_accuracy"])
def test_a_criterion_that_overrides_fairseqs_methods_keeps_its_path_with_one_message(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def tripled(self: Any, *args: Any, **settings: Any) -> Tuple[Tensor, Tensor]:
        first, second = getattr(LabelSmoothedCrossEntropyCriterion, name)(self, *args, **settings)
        return 3 * first, second

    model, criterions = train(), [make(report_accuracy=True) for make in (ours, theirs)]
    for criterion in criterions:
        criterion.__class__ = type("Own", (type(criterion),), {name: tripled})
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            measured, expected = (outcome(criterion, model) for criterion in criterions)
    assert_equal(measured, expected)
    (record,) = caplog.records
    assert "not computed in chunks: Own overrides one of compute_loss, " in record.getMessage()


def test_unreduced_losses_are_fairseqs_own() -> None:
    model = train()
    found, expected = (outcome(make(), model, reduce=False) for make in (ours, theirs))
    torch.testing.assert_close(found, expected)


def test_torch_func_derives_fairseqs_loss() -> None:
    model = train("--encoder-learned-pos", "--decoder-learned-pos").double()
    model(**SAMPLE["net_input"])  # fairseq keeps a mask, which torch.func could not keep
    parameters = {f"1.{name}": p.detach() for name, p in model.named_parameters()}
    results = []
    for criterion in (ours(), theirs()):
        both = nn.ModuleList([criterion, model])
        both.forward = lambda both=both: both[0](both[1], SAMPLE)[0]
        loss = functools.partial(torch.func.functional_call, both, args=())
        results.append(torch.func.jvp(torch.func.grad(loss), (parameters,), (parameters,)))
    torch.testing.assert_close(*results)


def test_second_derivatives_are_refused_in_one_line() -> None:
    """The gradients that are computed with the loss would be constants."""
    model = train()
    loss = ours()(model, SAMPLE)[0]
    with pytest.raises(RuntimeError, match=r"give --loss-chunk-tokens 0$"):
        torch.autograd.grad(loss, [*model.parameters()], create_graph=True)
