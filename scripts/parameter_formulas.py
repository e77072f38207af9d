"""How many parameters each mechanism adds to the Transformer: the papers' formulas, exactly.

Written from the equations, not from the modules: a test compares both. N, the number of output
capsules, is d.
"""

from __future__ import annotations

from typing import Tuple

from capsnmt.models import SIZES

SUFFIXES = {"base": "", "big": "_big", "iwslt": "_iwslt", "tiny": "_tiny"}


def dimensions(size: str) -> Tuple[int, int, int, int]:
    """Width d, feed-forward width, heads H, and layers L of each stack."""
    values = SIZES[SUFFIXES[size]]
    parts = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")
    width, ffn, heads, layers = (values[f"encoder_{part}"] for part in parts)
    return width, ffn, heads, layers


def head_aggregation(
    attentions: int, size: str = "base", routing: str = "em", heads: int = 0
) -> int:
    """W1 and W2 in place of W^O (li2019 eq 5, 6): H d^2 + H d an attention; EM: 2 N more."""
    d, _, H, _ = dimensions(size)
    H = heads or H
    return attentions * (H * d**2 + H * d + (2 * d if routing == "em" else 0))


def layer_aggregation(mode: str, sides: int, size: str = "base") -> int:
    """The aggregation of a stack's L layers (dou2019 eq 3 to 16; ampomah2020 section 5.3)."""
    d, ffn, _, L = dimensions(size)
    votes = 2 * ((L * d) ** 2 + L * d)
    activation = (L * d) * (L * d) + L * d
    counts = {
        "linear": L * d**2,
        "iterative": (L - 1) * (2 * d * ffn + ffn + ffn * d + d + 2 * d),
        "transparent": (L + 1) * L,
        "dynamic": L * d * ffn + ffn + ffn * L * d + L * d,
        "dynamic-routing": votes,
        "em-routing": votes + activation + 2 * d,
        "em-routing, own": 3 * L * (d**2 + d) + 2 * d,
    }
    return sides * counts[mode]


def multi_layer_attention(variant: str, sources: int, size: str = "base") -> int:
    """W^q, W^k, W^v of each further source in each decoder layer (ampomah2020 eq 7 to 12).

    M-01 gives all sources the same weights, so it sums their values and can tell one bias only.
    Where the contexts are concatenated, W^o grows by d x d a source.
    """
    d, _, _, L = dimensions(size)
    biases = 2 * d if variant == "M-01" else 3 * d
    output = d**2 if variant in ("M-00", "M-10") else 0
    return L * (sources - 1) * (3 * d**2 + biases + output)


def capsule_attention(encoder_layers: int, size: str = "base") -> int:
    """W^up and b^up of vertical routing, H x H and H (duan2020 eq 10)."""
    H = dimensions(size)[2]
    return encoder_layers * (H**2 + H)


def wider_feed_forward(ffn: int, size: str = "base") -> int:
    """The feed-forward layers of both stacks, of width ``ffn`` instead."""
    d, narrow, _, L = dimensions(size)
    return 2 * L * (ffn - narrow) * (2 * d + 1)


def more_layers(count: int, size: str = "base") -> int:
    """So many more layers in each stack."""
    d, ffn, _, _ = dimensions(size)
    attention, feed_forward, norm = 4 * (d**2 + d), 2 * d * ffn + ffn + d, 2 * d
    return count * (3 * attention + 2 * feed_forward + 5 * norm)
