"""The flags of sentence classifiers reach the model; bad settings are one line."""

from __future__ import annotations

import pytest
import torch

from capsnmt.cli import ConfigurationError
from tests.sentences.systems import SMALL, build, parse

REFUSED = {
    "--decoder-layers 2": "--decoder-layers 2 has no effect: .*no decoder",
    "--share-all-embeddings": "--share-all-embeddings True has no effect",
    "--mlmha M-10": "--mlmha M-10 has no effect",
    "--capsule-routing-decoder horizontal": "--capsule-routing-decoder horizontal has no effect",
    "--head-aggregation em --head-aggregation-decoder-layers 1": (
        "--head-aggregation-decoder-layers 1 has no effect"
    ),
    "--head-aggregation em --head-aggregation-attention enc-dec": (
        "--head-aggregation-attention enc-dec: .*give enc-self"
    ),
    "--layer-aggregation transparent": "--layer-aggregation transparent: .*give linear",
    "--layer-aggregation linear --layer-aggregation-side both": (
        "--layer-aggregation-side both: .*give encoder"
    ),
    "--pooling max": "--pooling: 'max': choose from mean, queries",
    "--pooling-queries 3": "--pooling-queries 3 has no effect because --pooling is mean",
    "--pooling queries --pooling-queries 0": "--pooling-queries: 0: give 1 or more",
    "--classifier-layers 0": "--classifier-layers: 0: give 1 or more",
    "--classifier-layers 1 --classifier-dim 8": "--classifier-dim 8 has no effect",
    "--compile --criterion sentence_classification --disagreement output": (
        "--compile and --disagreement output, which reads every layer on the way: drop one of them"
    ),
    "--probe-checkpoint nowhere.pt": "--probe-checkpoint: nowhere.pt: there is no such checkpoint",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_a_bad_setting_is_one_line_before_anything_is_built(flags: str) -> None:
    with pytest.raises(ConfigurationError, match=REFUSED[flags]) as error:
        parse("probing_transformer", *SMALL, *flags.split())
    assert "\n" not in str(error.value)


def test_the_flags_reach_the_model() -> None:
    flags = ("--pooling", "queries", "--pooling-queries", "3", "--classifier-layers", "4")
    model = build(*flags, "--classifier-dim", "7", "--layer-aggregation", "linear")
    maps = [layer for layer in model.classifier if isinstance(layer, torch.nn.Linear)]
    widths = [(layer.in_features, layer.out_features) for layer in maps]
    assert widths == [(2 * 3 * 16, 7), (7, 7), (7, 7), (7, 5)]
    assert type(model.encoder.layer_aggregation).__name__ == "LinearCombination"
    assert model.pooling.queries.shape == (3, 16)
    assert not model.frozen
