"""With every switch off, the model is fairseq's Transformer."""

from __future__ import annotations

import fairseq.models
import pytest
import torch

from capsnmt.models.layers import learned_parameters
from tests.support import PAD, SMALL, TASK, batch, build, forward, parse, sentences

VARIANTS = {
    "post-norm": (),
    "pre-norm": ("--encoder-normalize-before", "--decoder-normalize-before"),
    "attention dropout": ("--attention-dropout", "0.3"),
    "cross self-attention": ("--cross-self-attention", "--no-cross-attention"),
    "one embedding": ("--share-all-embeddings",),
    "layer drop": ("--encoder-layerdrop", "0.3", "--decoder-layerdrop", "0.3"),
}


def stock(*flags: str) -> torch.nn.Module:
    torch.manual_seed(1)
    return fairseq.models.build_model(parse("transformer", *SMALL, *flags), TASK).eval()


@pytest.mark.parametrize("flags", VARIANTS.values(), ids=VARIANTS)
def test_parameters_and_their_initial_values_are_the_hosts(flags: tuple) -> None:
    ours, theirs = (
        learned_parameters(build("capsnmt_transformer", *flags)),
        learned_parameters(stock(*flags)),
    )
    assert list(ours) == list(theirs)
    for name, parameter in ours.items():
        assert torch.equal(parameter, theirs[name]), name


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("flags", VARIANTS.values(), ids=VARIANTS)
def test_outputs_and_gradients_are_the_hosts(flags: tuple, training: bool) -> None:
    inputs = sentences(5, 3), sentences(4, 5, seed=1)
    outputs, gradients = [], []
    for model in (build("capsnmt_transformer", *flags), stock(*flags)):
        torch.manual_seed(7)
        logits = forward(model.train(training), *inputs)
        real = batch(inputs[1], left_pad=False).ne(PAD)
        logits[real].square().sum().backward()
        outputs.append(logits[real])
        gradients.append({name: p.grad for name, p in learned_parameters(model).items()})
    if training and "--attention-dropout" in flags:
        # the same mask would need the same kernel: only its size can be compared
        torch.testing.assert_close(outputs[0].norm(), outputs[1].norm(), rtol=0.3, atol=0)
        return
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)
    for name, gradient in gradients[0].items():
        if gradient is not None:  # a dropped layer has none in either
            torch.testing.assert_close(gradient, gradients[1][name], atol=2e-5, rtol=2e-5, msg=name)


def test_the_attention_weights_are_the_hosts() -> None:
    source, target = sentences(5, 3), sentences(4, 4, seed=1)
    weights = []
    for model in (build("capsnmt_transformer"), stock()):
        rows = batch(source, left_pad=True)
        output = model(rows, rows.ne(PAD).sum(1), torch.stack(target), alignment_layer=0)
        weights.append(output[1]["attn"][0])
    torch.testing.assert_close(*weights)
