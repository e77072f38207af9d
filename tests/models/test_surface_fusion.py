"""SurfaceFusion against its equations: what it reads and predicts, and what its loss trains."""

import math
from types import SimpleNamespace
from typing import Any, Dict, Tuple

import pytest
import torch
from torch import Tensor

from capsnmt.cli import ConfigurationError
from capsnmt.models.decoder import TransformerDecoder
from tests.criterions.samples import train
from tests.criterions.test_chunked_loss import assert_equal, ours, outcome, theirs
from tests.support import (
    NORM,
    PAD,
    batch,
    build,
    encoder_input,
    forward,
    randomise_special_starts,
    sentences,
    shifted,
)

FUSION = ("--surface-fusion", "0.3")
SOURCES, TARGETS = sentences(5, 3), sentences(2, 4, seed=1)
AROUND: Dict[str, Tuple[str, ...]] = {
    "post-norm": (),
    "pre-norm": NORM,
    "widths": ("--encoder-embed-dim", "24"),
    "several sources": ("--mlmha", "M-10"),
    "mixtures": ("--layer-aggregation", "transparent"),
    "aggregated": ("--layer-aggregation", "linear"),
}


def oracle(model: Any, left_pad: bool) -> Tensor:
    """The log-probabilities ``[B, T, V]``, one word of one sentence after the other."""
    encoded = model.encoder(**encoder_input(SOURCES, left_pad))
    previous = shifted(batch(TARGETS, left_pad=False))
    features, _ = TransformerDecoder.extract_features(model.decoder, previous, encoded)
    attention, E = model.decoder.surface, model.decoder.output_projection.weight
    width = model.encoder.embed_tokens.embedding_dim
    tokens, places = batch(SOURCES, left_pad), []
    for b, sentence in enumerate(tokens):
        real = sentence.ne(PAD)
        keys = attention.k_proj(encoded["encoder_out"][0][real, b, -width:].detach())
        words = model.encoder.embed_tokens.weight[sentence[real]] * model.encoder.embed_scale
        for h in features[b]:
            q = attention.q_proj(h.detach())
            weights = (keys @ q / math.sqrt(len(q))).softmax(0)
            s = attention.out_proj(weights @ attention.v_proj(words))
            of_target, of_source = ((E @ x).log_softmax(0) for x in (h, s))
            places.append(0.7 * of_target + 0.3 * of_source)
    return torch.stack(places).view(len(SOURCES), -1, len(E))


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize("name", AROUND)
def test_scores_and_gradients_equal_the_equations(name: str, left_pad: bool) -> None:
    built = build("capsnmt_transformer", *FUSION, *AROUND[name])
    model, kept = randomise_special_starts(built).double(), batch(TARGETS, left_pad=False).ne(PAD)
    found, expected = forward(model, SOURCES, TARGETS, left_pad), oracle(model, left_pad)
    torch.testing.assert_close(found[kept], expected[kept])
    weights = torch.randn(found[kept].shape, generator=torch.Generator().manual_seed(3))
    gradients = [
        torch.autograd.grad((x[kept] * weights).sum(), [*model.parameters()], allow_unused=True)
        for x in (found, expected)
    ]
    torch.testing.assert_close(*gradients)
    probabilities = model.get_normalized_probs((found, None), log_probs=False)
    torch.testing.assert_close(probabilities.log(), found.float())
    assert (probabilities.sum(-1) < 1).all()


def test_a_nucleus_is_refused_where_probabilities_add_up_to_less_than_1() -> None:
    """fairseq would sample from all words where their sum is below its share."""
    nucleus = SimpleNamespace(sampling_topp=0.9)
    cfg = SimpleNamespace(generation=nucleus, common_eval=SimpleNamespace(path=None))
    with pytest.raises(ConfigurationError, match=r"^--sampling-topp is 0\.9[^\n]*$"):
        build("capsnmt_transformer", *FUSION).prepare_for_inference_(cfg)
    build("capsnmt_transformer").prepare_for_inference_(cfg)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("flags", [(), ("--autocast", "bf16")], ids=["fp32", "bf16"])
@pytest.mark.usefixtures("bf16_machine")
def test_the_loss_in_chunks_is_fairseqs(
    flags: Tuple[str, ...], training: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = train(*FUSION, "--dropout", "0.1", *flags).train(training)
    model = model if flags else model.double()
    for settings in ({}, {"ignore_prefix_size": 1}, {"report_accuracy": True}):
        found, expected = (outcome(criterion(**settings), model) for criterion in (ours, theirs))
        if flags:
            torch.testing.assert_close(found[0], expected[0], rtol=0.01, atol=0)
        else:
            assert_equal(found, expected)
    (not_in_chunks,) = caplog.messages
    assert "--report-accuracy" in not_in_chunks
