"""Layers and the decoder read what an equation or a flag says, and deep connected stacks learn."""

import math
from typing import Any, Dict, List

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.attention import Attention
from tests.modules.layer_aggregation_oracle import attended
from tests.support import NORM, WORDS, batch, build, forward, randomise_special_starts, sentences

FLAGS = (*NORM, "--layer-aggregation", "attention-residuals")


def norms(layer: Any) -> List[torch.nn.Module]:
    """The norms of a layer's sublayers, the first first: each reads h_l."""
    names = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
    return [getattr(layer, name) for name in names if hasattr(layer, name)]


@pytest.mark.parametrize("block", [1, 2, 4])
@pytest.mark.parametrize("side", ["encoder", "decoder"])
@torch.no_grad()
def test_every_sublayer_and_the_output_read_the_mixture_of_the_equation(
    side: str, block: int
) -> None:
    flags = ("--attention-residuals-block", str(block)) if block > 1 else ()
    model = randomise_special_starts(build("capsnmt_transformer", *FLAGS, *flags)).double()
    stack, read, computed = getattr(model, side), [], []
    for layer in stack.layers:
        layer.dropout_module.register_forward_hook(lambda _, __, v: computed.append(v))
        for norm in norms(layer):
            norm.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    stack.layer_norm.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    forward(model, sentences(5, 3), sentences(4, 2, seed=1))
    assert len(read) == len(computed) + 1 == 2 * len(norms(stack.layers[0])) + 1
    for token, sentence in ((0, 0), (3, 0), (2, 1)):
        v: List[Tensor] = [each[token, sentence] for each in computed]
        h = [each[token, sentence] for each in read]
        expected = attended(stack.connection, h[0], [lambda _, own=own: own for own in v])
        torch.testing.assert_close(h[1:], expected)


@torch.no_grad()
def test_quantisation_noise_is_in_every_matrix_of_every_attention() -> None:
    flags = ("--quant-noise-pq", "0.5", "--quant-noise-pq-block-size", "4")
    model = build("capsnmt_transformer", *flags).train()
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    assert {attention.role for attention in attentions} == set(ATTENTIONS)
    matrices = [
        getattr(attention, f"{name}_proj").weight
        for attention in attentions
        for name in ("q", "k", "v", "out")
    ]
    before = [matrix.clone() for matrix in matrices]
    forward(model, sentences(5, 3), sentences(4, 2, seed=1))
    assert not any(torch.equal(*pair) for pair in zip(before, matrices))


@pytest.mark.parametrize("number", [1, 2, 3])
@torch.no_grad()
def test_a_masked_source_is_the_layer_of_its_number(number: int) -> None:
    flags = ("--encoder-layers", "3", "--mlmha", "M-10")
    source = batch(sentences(5, 3), left_pad=True)
    plain, masked = (
        build("capsnmt_transformer", *flags, *more).encoder(source)["encoder_out"][0].split(16, -1)
        for more in ((), ("--mlmha-mask-source", str(number)))
    )
    expected = [x * (l != number) for l, x in enumerate(plain, 1)]
    torch.testing.assert_close([*masked], expected, rtol=0, atol=0)


def test_random_coefficients_are_drawn_by_the_seed_kept_in_training_and_in_checkpoints() -> None:
    flags = ("--head-aggregation", "em", "--layer-aggregation", "em-routing")
    flags = (*flags, "--routing-iterations", "1", "--routing-coefficients", "random")

    def drawn(model: torch.nn.Module) -> Dict[str, Tensor]:
        found = model.named_buffers()
        return {name: x.clone() for name, x in found if name.endswith("coefficients")}

    trained, same, other = (build("capsnmt_transformer", *flags, seed=n) for n in (1, 1, 2))
    start = drawn(trained)
    assert len(start) == 4  # two layers of the encoder, two stacks
    torch.testing.assert_close(drawn(same), start, rtol=0, atol=0)
    losses(trained, updates=3)
    torch.testing.assert_close(drawn(trained), start, rtol=0, atol=0)
    assert not any(torch.equal(x, start[name]) for name, x in drawn(other).items())
    other.load_state_dict(trained.state_dict())
    torch.testing.assert_close(drawn(other), start, rtol=0, atol=0)


DEEP = (
    *("--encoder-normalize-before", "--encoder-embed-dim", "32"),
    *("--decoder-layers", "1", "--decoder-normalize-before", "--decoder-embed-dim", "32"),
)
LENGTH, UPDATES = 4, 50


def losses(model: torch.nn.Module, updates: int = UPDATES) -> List[float]:
    """Train to copy sentences of random words; return the loss of each batch."""
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.01, betas=(0.9, 0.98))
    found = []
    for update in range(updates):
        lines = sentences(*[LENGTH] * 32, seed=update)
        logits = forward(model, lines, lines)
        loss = cross_entropy(logits.flatten(0, 1), batch(lines, left_pad=False).flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.one_host  # the oracles of values and gradients run on both hosts
@pytest.mark.parametrize(
    ("layers", "mode"),
    [
        (12, "dlcl"),
        # longer: the paper's depth, and connections of every layer by another matrix
        pytest.param(26, "dlcl", marks=pytest.mark.nightly),
        pytest.param(26, "dense", marks=pytest.mark.nightly),
        pytest.param(12, "attention-residuals", marks=pytest.mark.nightly),
    ],
)
def test_an_encoder_of_many_connected_layers_learns_to_copy(layers: int, mode: str) -> None:
    """Its loss falls below that of the best decoder without a source, which knows the length."""
    without_source = math.log(WORDS) * LENGTH / (LENGTH + 1)
    flags = ("--encoder-layers", str(layers), "--layer-aggregation", mode)
    found = losses(build("capsnmt_transformer", *DEEP, *flags))
    assert sum(found[-5:]) / 5 < without_source - 0.2, found
