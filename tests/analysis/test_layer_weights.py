"""The use of layers against the equations, one token at a time."""

from __future__ import annotations

from typing import Any, List

import pytest
import torch
from torch import Tensor, nn

from capsnmt.analysis.base import NotApplicableError
from capsnmt.analysis.layer_weights import LayerWeights
from tests.analysis.systems import analysed, precise, states_of_each_sentence, system_of

SIDES = ("encoder", "decoder")


def contributions(module: Any, mode: str, H: List[Tensor]) -> List[Tensor]:
    """Return the summands of one token's aggregate."""
    d = len(H[0])
    if mode == "linear":
        return [module.combine.weight[:, l * d : (l + 1) * d] @ h for l, h in enumerate(H)]
    if mode == "dynamic":
        g = module.fc2(torch.relu(module.fc1(torch.cat(H))))
        return [g[l * d : (l + 1) * d] * h for l, h in enumerate(H)]
    scores = [module.query @ (module.gain * h / (h @ h / d + 1e-6).sqrt()) for h in H]
    return [a * h for a, h in zip(torch.stack(scores).softmax(0), H)]


def mean_norms(tokens: List[List[Tensor]]) -> List[float]:
    """Return the mean norm of each summand, for the summands of every token."""
    return [sum(part.norm().item() for part in parts) / len(parts) for parts in zip(*tokens)]


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize("norm", [(), ("--encoder-normalize-before", "--decoder-normalize-before")])
@pytest.mark.parametrize("mode", ["linear", "dynamic", "attention"])
def test_it_is_the_mean_norm_of_each_contribution(mode: str, norm: Any, left_pad: bool) -> None:
    model = precise("capsnmt_transformer", "--layer-aggregation", mode, *norm)
    expected = []
    for side in SIDES:
        stack = getattr(model, side)
        tokens = []
        for states in states_of_each_sentence(model, side):
            layers = [stack.layer_norm(state) if norm else state for state in states[1:]]
            for token in zip(*layers):
                tokens.append(contributions(stack.layer_aggregation, mode, list(token)))
        norms = mean_norms(tokens)
        for layer, value in enumerate(norms, 1):
            expected.append((side, None, layer, value, value / sum(norms)))
    rows = analysed(LayerWeights, system_of(model, left_pad)).rows()
    assert [row[:3] for row in rows] == [row[:3] for row in expected]
    values = [number for row in expected for number in row[3:]]
    assert [number for row in rows for number in row[3:]] == pytest.approx(values)


@pytest.mark.parametrize("left_pad", [True, False])
def test_transparent_attention_has_shares_for_each_decoder_layer(left_pad: bool) -> None:
    flags = ("--layer-aggregation", "transparent", "--decoder-layers", "3")
    model = precise("capsnmt_transformer", *flags)
    weights = model.encoder.transparent.weight.softmax(0)
    tokens = [
        list(token)
        for states in states_of_each_sentence(model, "encoder")
        for token in zip(*states)
    ]
    expected = []
    for j in range(3):
        norms = mean_norms([[w * h for w, h in zip(weights[:, j], token)] for token in tokens])
        expected += [
            ("encoder", j + 1, layer, value, value / sum(norms))
            for layer, value in enumerate(norms)
        ]
    rows = analysed(LayerWeights, system_of(model, left_pad)).rows()
    assert [row[:3] for row in rows] == [row[:3] for row in expected]
    values = [number for row in expected for number in row[3:]]
    assert [number for row in rows for number in row[3:]] == pytest.approx(values)


@torch.no_grad()
def outputs_of_each_sentence(model: Any, side: str) -> List[List[Tensor]]:
    """Return y_0..y_L ``[tokens, d]`` of each sentence, the embedding and the layers' outputs."""
    layers = list(getattr(model, side).layers.children())
    found: List[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        found.append((output if isinstance(output, Tensor) else output[0])[:, 0])

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    embeddings = [states[0] for states in states_of_each_sentence(model, side)]
    for hook in hooks:
        hook.remove()
    return [[y_0, *found[len(layers) * n :][: len(layers)]] for n, y_0 in enumerate(embeddings)]


NORM = ("--encoder-normalize-before", "--decoder-normalize-before")


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize(("mode", "norm"), [("dlcl", NORM), ("dlcl", ()), ("dense", NORM)])
def test_connected_layers_have_shares_for_each_layer_and_the_output(
    mode: str, norm: Any, left_pad: bool
) -> None:
    model = precise("capsnmt_transformer", "--layer-aggregation", mode, *norm)
    expected = []
    for side in SIDES:
        connection = getattr(model, side).connection
        weights = [torch.ones(1), *connection.weights] if mode == "dense" else connection.weights
        norms = connection.norms if mode == "dlcl" and norm else [nn.Identity()] * 3
        sentences = outputs_of_each_sentence(model, side)
        for w in weights:
            reader = len(w) if len(w) < len(sentences[0]) else None
            tokens = [
                [w[k] * norms[k](y) for k, y in enumerate(token[: len(w)])]
                for outputs in sentences
                for token in zip(*outputs)
            ]
            values = mean_norms(tokens)
            expected += [(side, reader, k, v, v / sum(values)) for k, v in enumerate(values)]
    rows = analysed(LayerWeights, system_of(model, left_pad)).rows()
    assert [row[:3] for row in rows] == [row[:3] for row in expected]
    values = [number for row in expected for number in row[3:]]
    assert [number for row in rows for number in row[3:]] == pytest.approx(values)


def test_the_start_of_linear_combination_is_the_top_layer_alone() -> None:
    model = precise("capsnmt_transformer", "--layer-aggregation", "linear")
    for side in SIDES:
        getattr(model, side).layer_aggregation.reset_parameters()
    rows = analysed(LayerWeights, system_of(model)).rows()
    assert [row[-1] for row in rows] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "flags",
    [
        ("capsnmt_transformer",),
        ("transformer_mlmha",),
        ("transformer_dlcl_routing",),
        ("capsnmt_transformer", "--layer-aggregation", "iterative"),
    ],
)
def test_a_model_that_adds_up_no_layers_has_none(flags: Any) -> None:
    with pytest.raises(NotApplicableError, match="does not add up layers"):
        LayerWeights(system_of(precise(*flags)))
