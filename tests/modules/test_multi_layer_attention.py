"""Multi-layer attention against the equations of ampomah2020, one source and head at a time."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from capsnmt.models.attention import HostedAttention as Attention
from capsnmt.models.attention import HostedMultiLayerAttention as MultiLayerAttention
from capsnmt.modules.multi_layer_attention import VARIANTS
from tests.modules.compare import assert_same
from tests.modules.multi_layer_oracle import JOINT, PADDINGS, attention, inputs, oracle

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.mark.parametrize(
    ("num_sources", "kind", "side"),
    [
        (1, "linear", "right"),
        (3, "linear", "none"),
        (3, "linear", "left"),
        # H heads (M-00, M-01), or H of each source, of which one can attend for another
        (2, "gated", "right"),
        (2, "talking", "left"),
    ],
)
@every_variant
def test_output_weights_and_gradients_equal_the_equations(
    variant: str, num_sources: int, kind: str, side: str
) -> None:
    module, padding = attention(variant, num_sources, kind), PADDINGS[side]
    query, memory = inputs(num_sources)
    expected, of_sources = oracle(module, query, memory, padding)
    # the sources share their weights, or are one after the other
    expected_weights = of_sources[0] if variant in JOINT else of_sources.flatten(0, 1)
    for need_weights in (False, True):  # the fused kernel, and the probabilities
        output, mean = module(query, memory, memory, padding, need_weights=need_weights)
        assert_same(output, expected, module, query, memory)
        if need_weights:
            torch.testing.assert_close(mean, expected_weights.mean(0))
    _, weights = module(query, memory, memory, padding, need_head_weights=True)
    torch.testing.assert_close(weights, expected_weights)


@pytest.mark.parametrize("source_width", [64, 96])
@every_variant
def test_every_source_starts_as_the_transformer(variant: str, source_width: int) -> None:
    """Uniform up to fairseq's bound, and no two sources the same."""
    width, sources = 64, 3
    torch.manual_seed(0)
    module = MultiLayerAttention(width, 4, sources, variant, source_dim=source_width)
    plain = Attention(width, 4, source_dim=source_width, cross=True)
    for name in ("q_proj", "k_proj", "v_proj"):
        one, stock = getattr(module, name).weight, getattr(plain, name).weight
        columns = variant == "M-01" and name == "v_proj"
        blocks = one.split(source_width, dim=1) if columns else one.split(width)
        assert len(blocks) == sources
        for block in blocks:
            assert block.shape == stock.shape
            largest, bound = block.abs().max().item(), stock.abs().max().item()
            assert largest == pytest.approx(bound, rel=0.01)
        assert not torch.equal(blocks[0], blocks[1])
    assert not module.out_proj.bias.any()


@every_variant
def test_the_output_starts_as_large_as_the_transformers(variant: str) -> None:
    """Its variance is 2n / (n + 1) times as large: 1.7 at n = 6, where blocks alone give 6."""
    torch.manual_seed(0)
    width, sources = 128, 6
    query, memory = torch.randn(16, 8, width), torch.randn(2, 8, sources * width)
    module = MultiLayerAttention(width, 4, sources, variant)
    plain = Attention(width, 4, cross=True)
    for attending in (module, plain):
        nn.init.zeros_(attending.v_proj.bias)
        nn.init.zeros_(attending.q_proj.weight)  # else sharper joint weights average less
        nn.init.zeros_(attending.q_proj.bias)
    output, _ = module(query, memory, memory)
    reference, _ = plain(query, memory[..., :width], None)
    assert (output.var() / reference.var()).item() == pytest.approx(12 / 7, rel=0.3)
