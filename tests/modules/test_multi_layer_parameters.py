"""The parameters of multi-layer attention: how many they are, and how they start."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from capsnmt.models.attention import HostedAttention as Attention
from capsnmt.models.attention import HostedMultiLayerAttention as MultiLayerAttention
from capsnmt.modules.multi_layer_attention import VARIANTS
from tests.modules.multi_layer_oracle import (
    BATCH,
    HEADS,
    KEYS,
    LENGTH,
    PADDINGS,
    SOURCE_WIDTH,
    SUMS,
    WIDTH,
)

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.mark.parametrize("source_width", [WIDTH, SOURCE_WIDTH])
@every_variant
def test_one_source_is_the_transformer(variant: str, source_width: int) -> None:
    """Same names, shapes and, from the same seed, same numbers; a stock state dict loads."""
    torch.manual_seed(0)
    module = MultiLayerAttention(WIDTH, HEADS, 1, variant, source_dim=source_width)
    torch.manual_seed(0)
    plain = Attention(WIDTH, HEADS, source_dim=source_width, cross=True)
    ours, theirs = module.state_dict(), plain.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for parameter in plain.parameters():
        nn.init.normal_(parameter)
    module.load_state_dict(plain.state_dict())
    query, memory = torch.randn(LENGTH, BATCH, WIDTH), torch.randn(KEYS, BATCH, source_width)
    for need_weights in (False, True):
        for one, other in zip(
            module(query, memory, memory, PADDINGS["left"], need_weights=need_weights),
            plain(query, memory, memory, PADDINGS["left"], need_weights=need_weights),
        ):
            assert one is other is None or torch.equal(one, other)


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


# Table 6 prints totals rounded to 0.1M: a difference of two of them is right to within 0.1
TABLE_6 = {
    "M-00": (6.3, 12.6, 18.9, 25.2, 31.5),
    "M-01": (4.7, 9.5, 14.2, 18.9, 23.6),
    "M-10": (6.3, 12.6, 18.9, 25.2, 31.5),
    "M-11": (4.7, 9.5, 14.2, 18.9, 23.6),
}


@every_variant
def test_parameters_of_table_6(variant: str) -> None:
    """Each further source costs q, k, v and, where contexts are concatenated, its part of W^o."""
    d, layers = 512, 6
    weights = 3 if variant in SUMS else 4
    biases = 2 if variant == "M-01" else 3  # a sum of values has one bias
    with torch.device("meta"):
        plain = Attention(d, 8, cross=True)
        counts = [
            sum(p.numel() for p in MultiLayerAttention(d, 8, n, variant).parameters())
            for n in range(2, 7)
        ]
    baseline = sum(p.numel() for p in plain.parameters())
    for n, count, printed in zip(range(2, 7), counts, TABLE_6[variant]):
        extra = layers * (count - baseline)
        assert extra == layers * (n - 1) * (weights * d * d + biases * d)
        assert extra / 1e6 == pytest.approx(printed, abs=0.1)


@pytest.mark.parametrize(
    ("variant", "num_sources", "message"),
    [
        ("M-02", 2, "'M-02'.*M-00, M-01, M-10, M-11"),
        ("M-00", 0, "num_sources must be .* 1, not 0"),
    ],
)
def test_a_bad_setting_is_named(variant: str, num_sources: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiLayerAttention(WIDTH, HEADS, num_sources, variant)
