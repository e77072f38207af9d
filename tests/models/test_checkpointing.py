"""Activation checkpointing: a layer that runs again is the layer, its terms included."""

import threading
from typing import Any, Tuple

import pytest
import torch

from capsnmt.modules.disagreement import TERMS, record_disagreement
from capsnmt.routing import record_routing
from tests.counting import kept
from tests.support import EVERYWHERE, NORM, build, forward, sentences

INPUTS = sentences(5, 3), sentences(4, 2, seed=1)
ROLES = ("enc-self", "enc-dec", "dec-self")
SYSTEMS = {
    "plain": ("--attention-dropout", "0.1", "--dropout", "0.1"),
    "routed heads": ("--head-aggregation", "em", *EVERYWHERE),
    "connected": ("--layer-aggregation", "dlcl", "--mlmha", "M-10"),
    "attention residuals": (
        *("--layer-aggregation", "attention-residuals", "--attention-residuals-block", "2"),
        *(*NORM, "--mlmha", "M-10", "--dropout", "0.1"),
    ),
    "capsules": ("--capsule-routing-encoder", "both", "--capsule-routing-decoder", "horizontal"),
    "aggregated": ("--layer-aggregation", "em-routing", "--head-aggregation", "talking"),
    "bf16": ("--autocast", "bf16"),
}


def model(*flags: str) -> Any:
    return build("capsnmt_transformer", *flags).train()


def results(model: Any) -> Tuple[Any, ...]:
    """Logits, terms and gradients of a pass in which the terms enter the loss."""
    torch.manual_seed(3)
    with record_disagreement(TERMS, ROLES) as record:
        logits = forward(model, *INPUTS)
    terms = [value for values in record.values.values() for value in values]
    (logits.float().square().mean() + sum(term.sum() for term in terms)).backward()
    return logits, terms, [parameter.grad for parameter in model.parameters()]


@pytest.mark.usefixtures("bf16_machine")
@pytest.mark.parametrize(
    ("name", "offload"),
    [*((name, ()) for name in SYSTEMS), ("aggregated", ("--offload-activations",))],
)
def test_checkpointed_layers_compute_what_plain_ones_do(name: str, offload: tuple) -> None:
    flags = SYSTEMS[name]
    plain, checkpointed = model(*flags), model(*flags, "--checkpoint-activations", *offload)
    torch.testing.assert_close(results(checkpointed), results(plain), rtol=0, atol=0)


def test_layers_that_run_again_are_recorded_once_and_keep_little_more_than_their_input() -> None:
    elements, counts, gradients = [], [], []
    for flags in ((), ("--checkpoint-activations",)):
        routed = model(*SYSTEMS["routed heads"], *flags)
        with record_routing() as records:
            with kept() as tensors:
                logits = forward(routed, *INPUTS)
            elements.append(sum(tensor.numel() for tensor in tensors))
            logits.sum().backward()
        counts.append(len(records))
        gradients.append([parameter.grad for parameter in routed.parameters()])
    assert elements[1] < elements[0] / 2
    assert counts[0] == counts[1] > 0
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_the_backward_pass_may_run_in_another_thread() -> None:
    """As CUDA's does: the open record belongs to the thread of the forward pass."""
    checkpointed = model("--checkpoint-activations")
    with record_disagreement(["output"], ["dec-self"]) as record:
        forward(checkpointed, *INPUTS)
    thread = threading.Thread(target=record.values["dec-self", "output"][0].sum().backward)
    thread.start()
    thread.join()
    assert checkpointed.decoder.layers[0].self_attn.v_proj.weight.grad.any()
