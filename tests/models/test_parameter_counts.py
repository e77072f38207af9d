"""How many parameters the presets and sizes have; ``tests/configs`` tests the papers' rows."""

from __future__ import annotations

import functools
import shlex

import pytest
import torch

from scripts.paper_rows import PLAIN, SUFFIXES, load_rows
from scripts.parameter_formulas import extra_parameters
from tests.support import build


@functools.cache
def parameters(flags: str) -> int:
    _, arch, *others = shlex.split(flags)
    with torch.device("meta"):
        model = build(arch, *others, small=False)
    return sum(p.numel() for p in model.parameters())


# (preset, size) -> the row that it is
NAMED = {
    ("capsnmt_transformer", "base"): "wmt14_en_de/baseline",
    ("transformer_em_routing", "base"): "wmt14_en_de/li2019_effective",
    ("transformer_em_routing", "big"): "wmt14_en_de/li2019_effective_big",
    ("transformer_dlcl_routing", "base"): "wmt14_en_de/dou2019_em_routing",
    ("transformer_dlcl_routing", "big"): "wmt14_en_de/dou2019_em_routing_big",
    ("transformer_dlcl", "base"): "wmt14_en_de/wang2019_dlcl",
    ("transformer_mlmha", "base"): "wmt14_en_de/ampomah2020_m10_n6",
    ("transformer_mlmha", "iwslt"): "iwslt14_es_en/ampomah2020_m00",
    ("capsule_transformer", "base"): "wmt14_en_de/duan2020_capsule",
    ("capsule_transformer", "big"): "wmt14_en_de/duan2020_capsule_big",
}


@pytest.mark.parametrize(("preset", "size"), NAMED, ids=" ".join)
def test_a_preset_is_its_row(preset: str, size: str) -> None:
    suffix = SUFFIXES[size]
    extra = parameters(f"--arch {preset}{suffix}") - parameters(f"--arch {PLAIN}{suffix}")
    assert extra == extra_parameters(load_rows()[NAMED[preset, size]])


@pytest.mark.parametrize("size", SUFFIXES)
def test_the_baseline_has_the_size_of_its_width_and_depth(size: str) -> None:
    width, ffn, layers = {
        "base": (512, 2048, 6),
        "big": (1024, 4096, 6),
        "iwslt": (256, 1024, 4),
        "tiny": (128, 256, 3),
    }[size]
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * ffn + width + ffn
    layer_norm = 2 * width
    encoder = attention + feed_forward + 2 * layer_norm
    decoder = 2 * attention + feed_forward + 3 * layer_norm
    embeddings = 3 * 28 * width  # source, target, output of the tests' 28-word dictionary
    expected = layers * (encoder + decoder) + embeddings
    assert parameters(f"--arch {PLAIN}{SUFFIXES[size]}") == expected
