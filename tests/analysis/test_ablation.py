"""Loss and BLEU without a head or a layer: as of models that are changed by other means."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from capsnmt.analysis import ablation
from capsnmt.analysis.ablation import GENERATION
from capsnmt.evaluation.metrics import multi_bleu
from capsnmt.evaluation.significance import holm
from tests.analysis.small_models import (
    LENGTHS,
    SCOPE,
    Flags,
    analysed,
    corpus,
    loss_per_token,
    losses_of_each_sentence,
    precise,
    rows_of,
    states_of_each_sentence,
)
from tests.support import EVERYWHERE, TASK

HEADS = {
    "em routing": ("transformer_em_routing", *EVERYWHERE, "--head-capsules", "4"),
    "capsule attention": ("capsule_transformer",),
    "talking": ("capsnmt_transformer", "--head-aggregation", "talking", *EVERYWHERE),
    **{variant: ("transformer_mlmha", "--mlmha", variant) for variant in ("M-00", "M-11")},
}


def without_values(model: Any, place: str, layer: int, head: int) -> Any:
    """Return a copy in which the values of one head (from 0), and so its output, are zero."""
    model = copy.deepcopy(model)
    stack = model.encoder if place == "enc-self" else model.decoder
    module = "encoder_attn" if place == "enc-dec" else "self_attn"
    attention = getattr(stack.layers[layer - 1], module)
    width, rows = attention.head_dim, attention.v_proj.weight.size(0)
    joined = attention.num_heads * width
    starts = [head * width]
    if getattr(attention, "variant", "") == "M-00":  # a head reads a part of every source
        starts = [source + head * width for source in range(0, rows, joined)]
    with torch.no_grad():
        for start in starts:
            attention.v_proj.weight[start : start + width] = 0
            attention.v_proj.bias[start : start + width] = 0
    return model


@pytest.mark.parametrize("name", HEADS)
def test_it_is_the_loss_of_a_model_without_the_values_of_the_head(
    name: str, tmp_path: Path
) -> None:
    """Also after the analysis of layers. Every fifth has each number of a head, and each layer."""
    flags, left_pad = HEADS[name], [*HEADS].index(name) % 2 == 0
    model = precise(*flags)
    findings = analysed(model, tmp_path, flags, ["head_ablation", "layer_ablation"], left_pad)
    found: Dict[Any, Any] = {row[:3]: row[3:] for row in rows_of(findings, "head_ablation")}
    sources = model.encoder.num_sources if flags[-1] == "M-11" else 1
    assert len(found) == 2 * 2 * 4 + 2 * 4 * sources
    intact = [sum(losses) for losses in losses_of_each_sentence(model)]
    tokens = [len(line) for line in corpus()[1]]
    for place, layer, head in [*found][::5]:
        changed = losses_of_each_sentence(without_values(model, place, layer, head - 1))
        differences = [sum(losses) - of_intact for losses, of_intact in zip(changed, intact)]
        ratio = sum(differences) / sum(tokens)
        squares = sum((d - ratio * n) ** 2 for d, n in zip(differences, tokens))
        error = math.sqrt(5 / 4 * squares) / sum(tokens)
        loss = sum(intact) / sum(tokens) + ratio
        assert found[place, layer, head] == pytest.approx((loss, ratio, error), abs=1e-5)
        assert abs(ratio) > 2e-5


def test_one_sentence_has_no_standard_error(tmp_path: Path) -> None:
    flags = ("capsnmt_transformer",)
    scope = replace(SCOPE, ablation_sentences=1)
    findings = analysed(precise(*flags), tmp_path, flags, ["head_ablation"], scope=scope)
    assert findings.of["head_ablation"]["it"].sentences == 1
    assert math.isnan(rows_of(findings, "head_ablation")[0][-1])


THREE = ("--encoder-layers", "3")
NORM = ("--encoder-normalize-before",)
# model -> layers that the decoder reads
LAYERS = {
    "two sources": (("transformer_mlmha", *THREE, "--mlmha-sources", "2"), (2, 3)),
    "pre-norm": (("transformer_mlmha", *NORM), (1, 2)),
    "transparent": (
        ("capsnmt_transformer", *THREE, *NORM, "--layer-aggregation", "transparent"),
        (0, 1, 2, 3),
    ),
    "linear": (("capsnmt_transformer", *NORM, "--layer-aggregation", "linear"), (1, 2)),
    "dlcl": (("capsnmt_transformer", *NORM, "--layer-aggregation", "dlcl"), (0, 1, 2)),
    "dense": (("capsnmt_transformer", "--layer-aggregation", "dense"), (0, 1, 2)),
}


def means(model: Any) -> List[Tensor]:
    """Return the mean state of each layer over all tokens, as the decoder reads it."""
    model, sums = copy.deepcopy(model), []
    connection, norm = model.encoder.connection, model.encoder.layer_norm
    if connection is not None:
        connection.register_forward_pre_hook(lambda _, inputs: sums.append([*inputs[0]]))
    sentences = states_of_each_sentence(model, "encoder")
    if connection is not None:  # the summands of the last sum, which is normalised later
        last = [summed for summed in sums if len(summed) == connection.num_states]
        sentences, norm = [[state[:, 0] for state in summed] for summed in last], None
    layers = [torch.cat(layer) for layer in zip(*sentences)]
    return [(layer if norm is None else norm(layer)).mean(0).detach() for layer in layers]


def replaced(model: Any, layer: int, value: Tensor) -> Any:
    """Return a copy whose decoder reads a constant instead of a layer."""
    model = copy.deepcopy(model)
    encoder = model.encoder
    module = encoder.transparent or encoder.layer_aggregation or encoder.connection
    if module is not None:  # its inputs are a list: H^1..H^L or H^0..H^L, at last
        lowest = int(module is encoder.layer_aggregation)

        def change(_: Any, inputs: Any) -> Any:
            states = list(inputs[0])
            if lowest + len(states) > len(encoder.layers):
                states[layer - lowest] = value.expand_as(states[layer - lowest])
            return (states,)

        module.register_forward_pre_hook(change)
        return model
    block = layer - 1 - (len(encoder.layers) - encoder.num_sources)
    encode = encoder.forward

    def overwritten(*args: Any, **kwargs: Any) -> Any:
        encoded = encode(*args, **kwargs)
        output = encoded["encoder_out"][0].clone()
        output[..., block * 16 : (block + 1) * 16] = value
        return {**encoded, "encoder_out": [output]}

    encoder.forward = overwritten  # beam search does not call the encoder's hooks
    return model


@pytest.mark.parametrize("name", LAYERS)
def test_it_is_the_loss_of_a_model_whose_decoder_reads_a_constant(
    name: str, tmp_path: Path
) -> None:
    (flags, layers), left_pad = LAYERS[name], [*LAYERS].index(name) % 2 == 0
    model = precise(*flags)
    rows = rows_of(analysed(model, tmp_path, flags, ["layer_ablation"], left_pad), "layer_ablation")
    assert [row[:2] for row in rows] == [(l, by) for l in layers for by in ("zeros", "mean")]
    intact = loss_per_token(model)
    for layer, replacement, loss, increase, _ in rows:
        mean = means(model)[layer]
        value = mean if replacement == "mean" else torch.zeros_like(mean)
        expected = loss_per_token(replaced(model, layer, value))
        assert (loss, increase) == pytest.approx((expected, expected - intact), abs=1e-5)
        assert abs(expected - intact) > 2e-5


@pytest.mark.parametrize("flags", [("transformer_dlcl_routing",), ("transformer_mlmha",)], ids=str)
def test_bleu_is_of_the_translations_of_a_model_that_reads_a_constant(
    flags: Flags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # an untrained model ends no translation by itself, and a batch has one limit
    monkeypatch.setitem(GENERATION, "max_len_a", 0)
    monkeypatch.setitem(GENERATION, "max_len_b", 8)
    model = precise(*flags).float()
    with torch.no_grad():
        for layer in model.decoder.layers:  # so that its translations depend on the source
            layer.encoder_attn.v_proj.weight.mul_(9)
    named: List[Any] = []
    translate = ablation.translate
    monkeypatch.setattr(
        ablation, "translate", lambda *given: named.append(translate(*given)) or named[-1]
    )
    scope = replace(SCOPE, ablation_translations=len(LENGTHS))
    rows = rows_of(analysed(model, tmp_path, flags, ["layer_bleu"], scope=scope), "layer_bleu")
    intact, *translations = (segments for _, segments in named)
    references = [TASK.target_dictionary.string(target) for target in corpus()[1]]
    for row, (_, segments) in zip(rows, named):
        assert row[2] == multi_bleu(segments, references, "").score
    assert intact == translations_of(model)
    keys = [(layer, by) for layer in range(3 - len(translations) // 2, 3) for by in (0, 1)]
    assert [tuple(row[:2]) for row in rows] == [
        (None, "none"), *((layer, ("zeros", "mean")[by]) for layer, by in keys),
    ]  # fmt: skip
    assert [row[3] for row in rows[1:]] == pytest.approx([row[2] - rows[0][2] for row in rows[1:]])
    assert [row[5] for row in rows] == [None, *holm([row[4] for row in rows[1:]])]
    for (number, by), found in zip(keys, translations):
        assert found == translations_of(replaced(model, number, by * means(model)[number]))
    assert any(found != intact for found in translations)


def translations_of(model: Any) -> List[str]:
    """Translate every sentence alone, by fairseq's beam search."""
    generator = SequenceGenerator([model], TASK.target_dictionary, **GENERATION)
    found = []
    for source in corpus()[0]:
        inputs = {"src_tokens": source[None], "src_lengths": torch.tensor([len(source)])}
        best = generator.generate([model], {"net_input": inputs})[0][0]
        found.append(TASK.target_dictionary.string(best["tokens"]))
    return found
