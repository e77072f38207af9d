"""The numbers of parameters that each mechanism adds to the Transformer, by the papers' formulas.

Written from the equations, not from the modules, so that a test can compare the two. N, the number
of output capsules, is d.
"""

from typing import Any, Mapping, Tuple

from capsnmt.models import SIZES
from capsnmt.modules.algorithms import OF_HEADS, OF_LAYERS
from capsnmt.modules.layer_aggregation import CONNECTIONS
from scripts.paper_rows import SUFFIXES, PaperRow

SIDES = {"encoder": 1, "decoder": 1, "both": 2}


def dimensions(size: str) -> Tuple[int, int, int, int]:
    """Return the width d, the feed-forward width, the heads H and the layers L of each stack."""
    values = SIZES[SUFFIXES[size]]
    parts = ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")
    width, ffn, heads, layers = (values[f"encoder_{part}"] for part in parts)
    return width, ffn, heads, layers


def extra_parameters(row: PaperRow) -> int:
    """Return the number of parameters that a row adds to the Transformer of its size."""
    flags, size = row.flags, row.size
    mechanisms = (
        head_aggregation,
        layer_aggregation,
        layer_connection,
        final_norms,
        multi_layer_attention,
        surface_fusion,
        capsule_attention,
        wider_feed_forward,
        more_layers,
    )
    return sum(mechanism(flags, size) for mechanism in mechanisms)


def head_aggregation(flags: Mapping[str, Any], size: str) -> int:
    """W1 and W2 replace W^O (li2019 eq. 5, 6): H d^2 + H d for each attention, and 2 N for EM.

    A gate is d x H (arXiv 2505.06708), and each mixing of talking heads H x H (arXiv 2003.02436).
    Composed heads have both mixings, and for each of them queries and keys make w_in and w_out, r
    rows each, from 2 r H hidden features, and a gate (arXiv 2405.08553).
    """
    kind = flags.get("head-aggregation", "linear")
    if kind == "linear":
        return 0
    d, _, H, L = dimensions(size)
    H = flags.get("encoder-attention-heads", H)
    layers = {"enc-self": chosen_layers(flags.get("head-aggregation-encoder-layers"), L)}
    attentions = flags["head-aggregation-attention"].split(",")
    votes = H * d**2 + H * d
    hidden = 2 * flags.get("head-composition-rank", 2) * H
    counts = {"gated": d * H, "talking": 2 * H**2}
    counts["composed"] = counts["talking"] + 4 * (d * hidden + hidden**2 + d * H)
    counts |= {name: votes + len(routing.costs) * d for name, routing in OF_HEADS.items()}
    return sum(layers.get(attention, L) for attention in attentions) * counts[kind]


def layer_aggregation(flags: Mapping[str, Any], size: str) -> int:
    """The aggregation of a stack's L layers (dou2019 eq. 3 to 16; ampomah2020 section 5.3)."""
    mode = flags.get("layer-aggregation", "none")
    if mode in ("none", *CONNECTIONS):
        return 0
    d, ffn, _, L = dimensions(size)
    votes = 2 * ((L * d) ** 2 + L * d)
    activation = (L * d) * (L * d) + L * d
    if flags.get("layer-capsule-input") == "own":
        votes, activation = 2 * L * (d**2 + d), L * (d**2 + d)
    counts = {
        "linear": L * d**2,
        "iterative": (L - 1) * (2 * d * ffn + ffn + ffn * d + d + 2 * d),
        "transparent": (L + 1) * L,
        "dynamic": L * d * ffn + ffn + ffn * L * d + L * d,
        "attention": 2 * d,
    }
    for name, routing in OF_LAYERS.items():
        counts[name] = votes + routing.reads_activation * activation + len(routing.costs) * d
    return SIDES[flags["layer-aggregation-side"]] * counts[mode]


def layer_connection(flags: Mapping[str, Any], size: str) -> int:
    """A weight for each state below each layer and the output (arXiv 1906.01787, 2402.02622).

    DenseFormer has none for x_1. DLCL normalises each state (pre-norm) or each sum but x_1.
    Attention Residuals have a query and a gain for each sublayer but the first, and for the output
    (arXiv 2603.15031).
    """
    mode = flags.get("layer-aggregation", "none")
    if mode not in CONNECTIONS:
        return 0
    d, _, _, L = dimensions(size)
    chosen = flags["layer-aggregation-side"]
    added = 0
    for side in ("encoder", "decoder") if chosen == "both" else (chosen,):
        layers = flags.get(f"{side}-layers", L)
        if mode == "attention-residuals":
            added += 2 * d * layers * {"encoder": 2, "decoder": 3}[side]
            continue
        added += (layers + 1) * (layers + 2) // 2
        if mode == "dense":
            added -= 1
        else:
            added += 2 * d * (layers + flags.get(f"{side}-normalize-before", False))
    return added


def multi_layer_attention(flags: Mapping[str, Any], size: str) -> int:
    """W^q, W^k, W^v of each further source in each decoder layer (ampomah2020 eq. 7 to 12).

    M-01 gives all sources the same attention weights, so it sums their values and needs one bias
    only. Where contexts are concatenated, W^o grows by d x d with each source.
    """
    variant = flags.get("mlmha", "none")
    if variant == "none":
        return 0
    d, _, _, L = dimensions(size)
    biases = 2 * d if variant == "M-01" else 3 * d
    output = d**2 if variant in ("M-00", "M-10") else 0
    return L * (flags["mlmha-sources"] - 1) * (3 * d**2 + biases + output)


def surface_fusion(flags: Mapping[str, Any], size: str) -> int:
    """One attention, of one head, to the embeddings of the source (arXiv 2012.14768)."""
    d, _, _, _ = dimensions(size)
    return 4 * (d**2 + d) if flags.get("surface-fusion") else 0


def capsule_attention(flags: Mapping[str, Any], size: str) -> int:
    """W^up and b^up of vertical routing, H x H and H, in each encoder layer (duan2020 eq. 10)."""
    if flags.get("capsule-routing-encoder", "none") not in ("vertical", "both"):
        return 0
    _, _, H, L = dimensions(size)
    return chosen_layers(flags.get("capsule-routing-encoder-layers"), L) * (H**2 + H)


def wider_feed_forward(flags: Mapping[str, Any], size: str) -> int:
    """The feed-forward layers of both stacks, of another width."""
    d, ffn, _, L = dimensions(size)
    widths = (flags.get(f"{side}-ffn-embed-dim", ffn) for side in ("encoder", "decoder"))
    return sum(L * (width - ffn) * (2 * d + 1) for width in widths)


def more_layers(flags: Mapping[str, Any], size: str) -> int:
    """More layers in each stack: two sublayers in the encoder's, three in the decoder's."""
    d, ffn, _, L = dimensions(size)
    attention, feed_forward, norm = 4 * (d**2 + d), 2 * d * ffn + ffn + d, 2 * d
    encoder = flags.get("encoder-layers", L) - L
    decoder = flags.get("decoder-layers", L) - L
    return encoder * (attention + feed_forward + 2 * norm) + decoder * (
        2 * attention + feed_forward + 3 * norm
    )


def final_norms(flags: Mapping[str, Any], size: str) -> int:
    """The LayerNorm at the end of a pre-norm stack."""
    d, _, _, _ = dimensions(size)
    return sum(2 * d for side in ("encoder", "decoder") if flags.get(f"{side}-normalize-before"))


def chosen_layers(text: Any, layers: int) -> int:
    """Return how many layers a list such as ``1,2`` or ``4-6`` names; all of them by default.

    >>> chosen_layers("1,4-6", 6)
    4
    """
    if text is None:
        return layers
    ranges = (part.split("-") for part in str(text).split(","))
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)
