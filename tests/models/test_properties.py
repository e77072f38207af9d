"""The properties every architecture and every combination of switches must hold."""

import copy
from typing import Any, Callable

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from capsnmt.cli import ConfigurationError
from tests.combinations import pairs_without_a_system, values_of
from tests.counting import WAITING, Operations
from tests.support import (
    HALF,
    PAD,
    SYSTEMS,
    TASK,
    VALUES,
    assert_every_parameter_learns,
    batch,
    build,
    build_system,
    encoder_input,
    every_system,
    flags_of,
    forward,
    sentences,
)


def loss_of(model: torch.nn.Module) -> torch.Tensor:
    """The mean negative log-likelihood of a small batch of unequal lengths."""
    targets = sentences(4, 2, 5, seed=1)
    logits = forward(model, sentences(5, 3, 2), targets).float()
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch(targets, left_pad=False).flatten(), ignore_index=PAD
    )


def test_each_pair_of_values_is_that_of_a_system_or_refused_in_one_line() -> None:
    """A value that is refused wrongly has no system; one that is accepted must get one.

    ``python -m tests.combinations`` prints the lines to add.
    """
    systems = [values_of(flags) for _, flags in SYSTEMS.values()]
    tested = {pair for each in systems for pair in each.items()}
    assert not {(switch, value) for switch in VALUES for value in VALUES[switch]} - tested
    for pair in pairs_without_a_system():
        with pytest.raises((ConfigurationError, SystemExit), match=r"^--[^\n]*$"):
            build("capsnmt_transformer", *flags_of(pair))


@every_system
def test_a_sentence_alone_equals_the_same_sentence_in_a_padded_batch(name: str) -> None:
    model = build_system(name).double()
    sources, targets = sentences(5, 3, 1), sentences(2, 4, 3, seed=1)
    alone = [forward(model, [one], [other])[0] for one, other in zip(sources, targets)]
    for left_pad in (True, False):
        together = forward(model, sources, targets, left_pad)
        for row, own in zip(together, alone):
            torch.testing.assert_close(row[: len(own)], own, atol=1e-9, rtol=1e-9)
    # --left-pad-target
    previous = batch([target.roll(1) for target in targets], left_pad=True)
    for row, own in zip(model(**encoder_input(sources), prev_output_tokens=previous)[0], alone):
        torch.testing.assert_close(row[-len(own) :], own, atol=1e-9, rtol=1e-9)


@every_system
def test_every_parameter_gets_a_finite_gradient_that_is_not_zero(name: str) -> None:
    model = build_system(name).train()
    loss_of(model).backward()
    assert_every_parameter_learns(model)


@pytest.mark.one_host
@every_system
def test_no_layer_waits_for_the_gpu(name: str) -> None:
    """In training, in its backward pass, and in steps of beam search."""
    model, operations = build_system(name).train(), Operations()

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def watch(*args: Any, **kwargs: Any) -> Any:
            with operations:
                return function(*args, **kwargs)

        return watch

    for layer in (*model.encoder.layers.children(), *model.decoder.layers.children()):
        layer.forward = watched(layer.forward)
    loss = loss_of(model)
    assert operations.calls, "the layers are watched"
    with operations:
        loss.backward()
    generator = SequenceGenerator([model], TASK.target_dictionary, beam_size=2, max_len_b=3)
    generator.generate([model], {"net_input": encoder_input(sentences(3, 2))})
    assert not operations.count(*WAITING)


@pytest.mark.usefixtures("bf16_machine")
@every_system
def test_half_precision_is_finite_and_close_to_fp32(name: str) -> None:
    """By ``--autocast``, under torch's with its gradients, and converted as by --fp16."""
    model = build_system(name).train()
    full = loss_of(model).item()
    loss = loss_of(build_system(name, "--autocast", "bf16").train())
    assert 0 < abs(loss.item() - full) < 0.02 * full
    for dtype in HALF:
        with torch.autocast("cpu", dtype=dtype):
            low = loss_of(model)
        model.zero_grad()
        low.backward()
        for parameter_name, parameter in model.named_parameters():
            assert parameter.grad.isfinite().all(), (dtype, parameter_name)
        converted = loss_of(copy.deepcopy(model).eval().to(dtype))
        for loss in (low, converted):
            assert abs(loss.item() - full) < 0.02 * full, dtype
