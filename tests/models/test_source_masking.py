"""The ablation of ampomah2020, Table 7: the output of one source is set to zero."""

from __future__ import annotations

import pytest
import torch

from tests.support import PAD, batch, build, forward, sentences

INPUTS = sentences(5, 3), sentences(4, 2, seed=1)
MODEL = ("transformer_mlmha", "--encoder-layers", "3", "--mlmha-sources", "2")


@pytest.mark.parametrize("layer", [2, 3])
def test_the_masked_layer_is_zero_and_the_others_are_unchanged(layer: int) -> None:
    source = batch(INPUTS[0], left_pad=True)
    lengths = source.ne(PAD).sum(1)
    unmasked, masked = build(*MODEL), build(*MODEL, "--mlmha-mask-source", str(layer))
    masked.load_state_dict(unmasked.state_dict())
    width = 16
    before, after = (m.encoder(source, lengths)["encoder_out"][0] for m in (unmasked, masked))
    block = slice((layer - 2) * width, (layer - 1) * width)
    assert not after[..., block].any()
    other = slice(width, None) if layer == 2 else slice(0, width)
    torch.testing.assert_close(after[..., other], before[..., other])
    assert not torch.allclose(forward(unmasked, *INPUTS), forward(masked, *INPUTS))


def test_an_aggregate_replaces_the_top_source() -> None:
    source = batch(INPUTS[0], left_pad=True)
    plain = build(*MODEL)
    flags = ("--layer-aggregation", "dynamic", "--layer-aggregation-side", "encoder")
    model = build(*MODEL, *flags)
    model.load_state_dict(plain.state_dict(), strict=False)
    lengths = source.ne(PAD).sum(1)
    encoded = model.encoder(source, lengths, return_all_hiddens=True)
    lower, top = encoded["encoder_out"][0].split(16, dim=-1)
    torch.testing.assert_close(lower, plain.encoder(source, lengths)["encoder_out"][0][..., :16])
    states = encoded["encoder_states"][1:]
    torch.testing.assert_close(top, model.encoder.layer_aggregation(states))
