"""Sentence classifiers: the properties that all must hold, their presets and their flags."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from fairseq.models import ARCH_MODEL_INV_REGISTRY, build_model
from fairseq.modules import LearnedPositionalEmbedding
from omegaconf import OmegaConf

from capsnmt.cli import ConfigurationError
from capsnmt.sentences import evaluate
from capsnmt.sentences.classifier import MeanPooling, QueryPooling
from tests.analysis.small_models import write_checkpoint
from tests.sentences.systems import (
    SENTENCE_SYSTEMS,
    build,
    build_system,
    classify,
    make_task,
    parse,
)
from tests.sentences.test_tasks import LINES, probing
from tests.support import (
    HALF,
    PAD,
    SYSTEMS,
    assert_every_parameter_learns,
    batch,
    encoder_input,
    every_system,
    sentences,
    with_every_commit,
)
from tests.support import build_system as build_translation_system

FIRST, SECOND = sentences(5, 3, 1), sentences(2, 4, 3, seed=1)


def loss_of(model: torch.nn.Module) -> torch.Tensor:
    return F.cross_entropy(classify(model, FIRST, SECOND).float(), torch.tensor([0, 3, 4]))


# The first ten have every kind of mechanism; the others are combinations, and run at night.
@with_every_commit(10, SENTENCE_SYSTEMS)
def test_padding_precision_and_gradients_of_every_classifier(name: str) -> None:
    model = build_system(name)
    # a pair alone is the same pair in a padded batch
    exact = copy.deepcopy(model).double()
    alone = [classify(exact, [first], [second])[0] for first, second in zip(FIRST, SECOND)]
    for left_pad in (True, False):
        for row, own in zip(classify(exact, FIRST, SECOND, left_pad), alone):
            torch.testing.assert_close(row, own, atol=1e-9, rtol=1e-9)
    # half precision is close to fp32
    full = loss_of(model).item()
    losses = [loss_of(copy.deepcopy(model).to(dtype)) for dtype in HALF]
    for dtype in HALF:
        with torch.autocast("cpu", dtype=dtype):
            losses.append(loss_of(model))
    for loss in losses:
        assert abs(loss.item() - full) < 0.03 * full
    # every parameter has a gradient that is finite and not zero
    loss_of(model.train()).backward()
    assert_every_parameter_learns(model)


def test_the_two_sentences_of_a_pair_are_distinguished_and_share_the_encoder() -> None:
    model = build().double()
    assert model.classifier[0].in_features == 2 * 16
    swapped = classify(model, SECOND, FIRST)
    assert not torch.allclose(swapped, classify(model, FIRST, SECOND))
    weight = model.classifier[0].weight
    with torch.no_grad():
        weight.copy_(torch.cat([weight[:, 16:], weight[:, :16]], dim=1))
    torch.testing.assert_close(classify(model, FIRST, SECOND), swapped)


def test_pooling_is_a_mean_or_attention_over_the_real_positions() -> None:
    states, padding = torch.randn(4, 2, 3), torch.tensor([[True, True, False, False], [False] * 4])
    pooling = QueryPooling(3, 2)
    mean, attention = (module(states, padding) for module in (MeanPooling(3), pooling))
    for line, real in enumerate((states[2:, 0], states[:, 1])):
        torch.testing.assert_close(mean[line], real.mean(0))
        weights = torch.softmax(pooling.queries @ real.t() / 3**0.5, dim=-1)
        torch.testing.assert_close(attention[line], (weights @ real).flatten())


def test_a_frozen_encoder_is_a_fixed_function_and_only_the_rest_learns() -> None:
    model = build("--freeze-encoder", "--dropout", "0.5", num_sentences=1).train()
    tokens = batch(FIRST, left_pad=True)
    outputs = [model.encoder(tokens, tokens.ne(PAD).sum(1))["encoder_out"][0] for _ in range(2)]
    torch.testing.assert_close(*outputs, atol=0, rtol=0)
    F.cross_entropy(model(tokens, tokens.ne(PAD).sum(1)), torch.tensor([0, 1, 2])).backward()
    learning = {name for name, p in model.named_parameters() if p.grad is not None}
    assert learning == {name for name, _ in model.named_parameters() if "classifier" in name}


@every_system
def test_a_probe_reads_the_top_layer_or_what_replaces_it(name: str, tmp_path: Path) -> None:
    model, (arch, flags) = build_translation_system(name), SYSTEMS[name]
    trained = write_checkpoint(model, tmp_path / "trained.pt", tmp_path, (arch, *flags))
    args = parse("probing_transformer", "--probe-checkpoint", str(trained.path))
    probe, encoder = build_model(args, make_task()).train(), model.encoder
    source = encoder_input(FIRST)
    states = encoder.normalise(encoder(**source, return_all_hiddens=True)["encoder_states"])
    aggregate = encoder.layer_aggregation
    top = states[-1] if aggregate is None else aggregate(states[1:])
    torch.testing.assert_close(probe.encoder(**source)["encoder_out"][0], top)


def test_the_presets_are_the_papers_settings() -> None:
    shapes = {}
    for arch in ARCH_MODEL_INV_REGISTRY["sentence_classifier"]:
        args = parse(arch)
        size = (args.encoder_layers, args.encoder_embed_dim, args.encoder_attention_heads)
        shapes[arch] = (*size, args.dropout, args.pooling, args.classifier_layers)
    assert shapes == {
        "probing_transformer": (3, 512, 8, 0.1, "mean", 2),
        "probing_transformer_deep": (6, 512, 8, 0.1, "mean", 2),
        "probing_transformer_tiny": (3, 128, 4, 0.1, "mean", 2),
        "logical_inference_transformer": (2, 256, 8, 0.2, "queries", 3),
        "logical_inference_transformer_tiny": (2, 64, 4, 0.2, "queries", 3),
    }
    model = build(arch="logical_inference_transformer")
    assert model.pooling.queries.shape == (2, 16)
    widths = [p.size(1) for name, p in model.classifier.named_parameters() if "weight" in name]
    assert widths == [64, 16, 16]


@pytest.mark.one_host  # stock's base_architecture takes what such settings lack for None
def test_a_classifier_of_the_settings_of_hydra() -> None:
    """As fairseq-hydra-train has them, and complete as in its checkpoint."""
    hydra = OmegaConf.create({"_name": "probing_transformer_tiny", "head_aggregation": "em"})
    for _ in range(2):
        built = build_model(hydra, make_task()).state_dict()
    assert "encoder.layers.2.self_attn.out_proj.beta_a" in built


def test_a_sentence_may_be_longer_than_a_batch_but_not_than_the_learned_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "BATCH_TOKENS", 4)
    task = probing(tmp_path, [*LINES, f"te\tPAST\t{'it ' * 40}"])
    model = build("--encoder-learned-pos", "--max-source-positions", "41", task=task)
    assert evaluate.count(model, task, "test").classes[2].sum() == 2
    model.encoder.embed_positions = LearnedPositionalEmbedding(33, 4, 0)
    with pytest.raises(ConfigurationError, match=r"^test has .* 41 tokens, .* 32 positions; "):
        evaluate.count(model, task, "test")
