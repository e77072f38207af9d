"""The parameter counts that the papers print, as differences from the baseline."""

from __future__ import annotations

import functools

import pytest

from tests.support import build

D, H, N = 512, 8, 512
ROUTED = H * D * D + H * D  # an attention whose W^O gave way to the network of the votes
BIG = 16 * 1024**2 + 16 * 1024
EM = ("--head-aggregation", "em")


@functools.cache
def parameters(arch: str, *flags: str) -> int:
    return sum(p.numel() for p in build(arch, *flags, small=False).parameters())


# row of li2019 -> (architecture, flags, exact difference, printed difference in millions)
ROWS = {
    "simple, enc-self": (("--head-aggregation", "simple"), 6 * ROUTED, 12.6),
    "EM, enc-self": (EM, 6 * (ROUTED + 2 * N), 12.6),
    "EM, enc-dec": ((*EM, "--head-aggregation-attention", "enc-dec"), 6 * (ROUTED + 2 * N), 12.6),
    "EM, dec-self": ((*EM, "--head-aggregation-attention", "dec-self"), 6 * (ROUTED + 2 * N), 12.6),
    "EM, enc-self and enc-dec": (
        (*EM, "--head-aggregation-attention", "enc-self,enc-dec"),
        12 * (ROUTED + 2 * N),
        25.2,
    ),
    "EM, all three": (
        (*EM, "--head-aggregation-attention", "enc-self,enc-dec,dec-self"),
        18 * (ROUTED + 2 * N),
        37.8,
    ),
    "EM, layers 4-6": (
        (*EM, "--head-aggregation-encoder-layers", "4-6"),
        3 * (ROUTED + 2 * N),
        6.3,
    ),
    "EM, layers 1-3": (
        (*EM, "--head-aggregation-encoder-layers", "1-3"),
        3 * (ROUTED + 2 * N),
        6.3,
    ),
    "EM, layers 1,2": (
        (*EM, "--head-aggregation-encoder-layers", "1,2"),
        2 * (ROUTED + 2 * N),
        4.2,
    ),
    "EM, layer 6": ((*EM, "--head-aggregation-encoder-layers", "6"), ROUTED + 2 * N, 2.1),
    "EM, layer 1": ((*EM, "--head-aggregation-encoder-layers", "1"), ROUTED + 2 * N, 2.1),
}


@pytest.mark.parametrize(("flags", "exact", "printed"), ROWS.values(), ids=ROWS)
def test_base_rows_of_li2019(flags: tuple, exact: int, printed: float) -> None:
    extra = parameters("capsnmt_transformer", *flags) - parameters("capsnmt_transformer")
    assert extra == exact
    assert round(extra / 1e6, 1) == printed


def test_effective_aggregation_of_the_big_model() -> None:
    extra = parameters("transformer_em_routing_big") - parameters("capsnmt_transformer_big")
    assert extra == 2 * (BIG + 2 * 1024)
    # li2019 prints 264M -> 297M, both rounded to a million
    assert abs(extra / 1e6 - 33) < 1


def test_effective_aggregation_of_the_base_model_is_the_preset() -> None:
    extra = parameters("transformer_em_routing") - parameters("capsnmt_transformer")
    assert extra == 2 * (ROUTED + 2 * N)


@pytest.mark.parametrize("size", ["", "_big", "_iwslt", "_tiny"])
def test_the_baseline_has_the_size_of_its_width_and_depth(size: str) -> None:
    width, ffn, layers = {
        "": (512, 2048, 6),
        "_big": (1024, 4096, 6),
        "_iwslt": (256, 1024, 4),
        "_tiny": (128, 256, 3),
    }[size]
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * ffn + width + ffn
    layer_norm = 2 * width
    encoder = attention + feed_forward + 2 * layer_norm
    decoder = 2 * attention + feed_forward + 3 * layer_norm
    embeddings = 3 * 28 * width  # source, target, output of the tests' 28-word dictionary
    assert parameters(f"capsnmt_transformer{size}") == layers * (encoder + decoder) + embeddings
