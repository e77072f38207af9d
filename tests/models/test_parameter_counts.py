"""The parameter counts that the papers print, as differences from the baseline.

Each row of ``scripts/rows.py`` names its command line, the number its formula in
``scripts/parameter_formulas.py`` gives, and the paper's. Models are built without memory (on the
meta device), so that the big ones cost nothing.
"""

from __future__ import annotations

import functools
import shlex

import pytest
import torch

from capsnmt.models import PRESETS
from scripts.parameter_formulas import SUFFIXES
from scripts.rows import EIGHT_HEADS, PLAIN, ROWS, Row
from tests.support import build


@functools.cache
def parameters(flags: str) -> int:
    _, arch, *others = shlex.split(flags)
    with torch.device("meta"):
        model = build(arch, *others, small=False)
    return sum(p.numel() for p in model.parameters())


def baseline(row: Row) -> str:
    return f"{PLAIN.format(size=SUFFIXES[row.size])} {row.baseline}".strip()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_adds_exactly_the_parameters_of_its_formula(row: Row) -> None:
    assert parameters(row.model()) - parameters(baseline(row)) == row.extra


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_has_the_printed_count_to_its_rounding_or_says_why_not(row: Row) -> None:
    assert row.fits() == (not row.mismatch)


def test_the_counts_that_no_reading_of_a_paper_explains_are_these() -> None:
    """A row cannot silently join the exceptions: what they print, and what the formulas give."""
    unexplained = {
        row.name: (row.printed.text, round(row.extra / 1e6, 1))
        for row in ROWS.values()
        if row.mismatch and row.printed
    }
    assert unexplained == {
        "linear combination": ("+14.7M", 3.1),
        "EM routing of layers": ("+56.8M", 56.6),
        "wider baseline (B1)": ("61.2M to 86.5M", 25.2),
        "effective, big, 8 heads": ("264M to 288M", 16.8),
        "disagreement and effective, big, 8 heads": ("264M to 288M", 16.8),
    }


# (preset, size) -> the row it stands for
NAMED = {
    ("capsnmt_transformer", "base"): "switches off",
    ("transformer_em_routing", "base"): "EM, enc-self, layers 1,2 (effective)",
    ("transformer_em_routing", "big"): "effective, big",
    ("transformer_dlcl_routing", "base"): "EM routing of layers",
    ("transformer_dlcl_routing", "big"): "EM routing of layers, big",
    ("transformer_mlmha", "base"): "M-10, n = 6",
    ("transformer_mlmha", "iwslt"): "M-00, IWSLT",
    ("capsule_transformer", "base"): "capsule routing",
    ("capsule_transformer", "big"): "capsule routing, big",
}


@pytest.mark.parametrize(("preset", "size"), NAMED, ids=" ".join)
def test_a_preset_is_its_row(preset: str, size: str) -> None:
    suffix = SUFFIXES[size]
    extra = parameters(f"--arch {preset}{suffix}") - parameters(PLAIN.format(size=suffix))
    assert extra == ROWS[NAMED[preset, size]].extra


def test_every_preset_is_a_row() -> None:
    assert {preset for preset, _ in NAMED} == set(PRESETS)


def test_heads_are_no_parameters() -> None:
    """So that the rows with 8 heads may be compared with either big baseline."""
    assert parameters(f"{PLAIN} {EIGHT_HEADS}".format(size="_big")) == parameters(
        PLAIN.format(size="_big")
    )


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
    assert parameters(PLAIN.format(size=SUFFIXES[size])) == expected
