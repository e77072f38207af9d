"""Every row of the papers' tables: what to train, what the paper prints, what we count.

One table with three users: ``benchmark.py``, ``parameter_table.py`` and the test of the counts.
Parameters are differences from the Transformer with the same vocabulary; a speed is the row's over
that of the paper's own baseline, so 1 is as fast. Speeds are printed in steps (training) and
sentences (decoding) per second, and stand here as such quotients.
"""

from __future__ import annotations

import argparse
import difflib
from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from scripts.parameter_formulas import (
    SUFFIXES,
    capsule_attention,
    head_aggregation,
    layer_aggregation,
    more_layers,
    multi_layer_attention,
    wider_feed_forward,
)

PAPERS = {
    "li2019": "Li et al. 2019, Tables 2 to 4",
    "dou2019": "Dou et al. 2019, Tables 1 to 3",
    "ampomah2020": "Ampomah et al. 2020, Tables 2 to 4 and 6",
    "li2021": "Li et al. 2021, Tables 1, 2, 5 and 6",
    "duan2020": "Duan et al. 2020, Tables 1 to 4",
}


@dataclass(frozen=True)
class Printed:
    """A count as a paper prints it, in millions, and how far its rounding can have taken it."""

    text: str
    millions: float
    rounding: float


def added(millions: float) -> Printed:
    """A difference that is printed as one, to 0.1M."""
    return Printed(f"+{millions:.1f}M", millions, 0.05)


def totals(baseline: float, row: float) -> Printed:
    """Two printed totals: each is off by up to half its last digit, their difference by one."""
    last_digit = 1.0 if isinstance(baseline, int) else 0.1
    return Printed(f"{baseline}M to {row}M", row - baseline, last_digit)


@dataclass(frozen=True)
class Row:
    """A system of a paper.

    Attributes:
        name: how the commands call it.
        paper: a key of ``PAPERS``; empty for the one row that no paper has.
        flags: of its model; ``{size}`` completes the architecture.
        extra: the exact number of parameters more than its baseline.
        printed: what the paper prints for that, if it does.
        train: speed of training.
        decode: speed of decoding.
        size: a key of ``SUFFIXES``.
        baseline: flags of its model that its baseline has, too.
        criterion: flags of its loss; label-smoothed cross-entropy where empty.
        mismatch: why ``extra`` and ``printed`` differ by more than rounding.
    """

    name: str
    paper: str
    flags: str
    extra: int = 0
    printed: Optional[Printed] = None
    train: Optional[float] = None
    decode: Optional[float] = None
    size: str = "base"
    baseline: str = ""
    criterion: str = ""
    mismatch: str = ""

    def model(self, size: Optional[str] = None) -> str:
        """The flags of its model, in its own or in another size."""
        return f"{self.flags.format(size=SUFFIXES[size or self.size])} {self.baseline}".strip()

    def command(self, size: Optional[str] = None) -> str:
        """The flags that make a training this row."""
        return f"{self.model(size)} {self.criterion}".strip()

    def fits(self) -> bool:
        """Whether the exact count is the printed one, to the paper's rounding."""
        printed = self.printed
        return printed is None or abs(self.extra / 1e6 - printed.millions) < printed.rounding + 1e-9


PLAIN = "--arch capsnmt_transformer{size}"


def heads(routing: str, attentions: str, layers: str = "") -> str:
    """Flags of head aggregation."""
    where = f" --head-aggregation-encoder-layers {layers}" if layers else ""
    return f"{PLAIN} --head-aggregation {routing} --head-aggregation-attention {attentions}{where}"


def layers(mode: str, side: str = "both") -> str:
    """Flags of layer aggregation."""
    return f"{PLAIN} --layer-aggregation {mode} --layer-aggregation-side {side}"


def sources(variant: str, count: int) -> str:
    """Flags of multi-layer attention."""
    return f"{PLAIN} --mlmha {variant} --mlmha-sources {count}"


def capsules(encoder: str, decoder: str = "none", layers: str = "") -> str:
    """Flags of capsule-routing self-attention."""
    sides = {"encoder": encoder, "decoder": decoder}
    flags = [f"--capsule-routing-{side} {mode}" for side, mode in sides.items() if mode != "none"]
    where = [f"--capsule-routing-encoder-layers {layers}"] if layers else []
    return " ".join([PLAIN, *flags, *where])


def disagreement(term: str, attentions: str = "enc-self") -> str:
    """Flags of the criterion."""
    return (
        "--criterion label_smoothed_cross_entropy_with_disagreement"
        f" --disagreement {term} --disagreement-attention {attentions}"
    )


EFFECTIVE = heads("em", "enc-self", "1,2")
ALL = "enc-self,enc-dec,dec-self"
BEST = disagreement("output", ALL)
EIGHT_HEADS = "--encoder-attention-heads 8 --decoder-attention-heads 8"

# fmt: off
LI2019 = (
    Row("simple, enc-self", "li2019", heads("simple", "enc-self"),
        head_aggregation(6, routing="simple"), added(12.6), 1.23 / 1.92, 1.66 / 1.67),
    Row("EM, enc-self", "li2019", heads("em", "enc-self"),
        head_aggregation(6), added(12.6), 1.20 / 1.92, 1.65 / 1.67),
    Row("EM, enc-dec", "li2019", heads("em", "enc-dec"),
        head_aggregation(6), added(12.6), 1.20 / 1.92, 1.21 / 1.67),
    Row("EM, dec-self", "li2019", heads("em", "dec-self"),
        head_aggregation(6), added(12.6), 1.21 / 1.92, 1.21 / 1.67),
    Row("EM, enc-self + enc-dec", "li2019", heads("em", "enc-self,enc-dec"),
        head_aggregation(12), added(25.2), 0.87 / 1.92, 1.20 / 1.67),
    Row("EM, all three", "li2019", heads("em", ALL),
        head_aggregation(18), added(37.8), 0.66 / 1.92, 0.89 / 1.67),
    Row("EM, enc-self, layers 4-6", "li2019", heads("em", "enc-self", "4-6"),
        head_aggregation(3), totals(88.0, 94.3), 1.54 / 1.92),
    Row("EM, enc-self, layers 1-3", "li2019", heads("em", "enc-self", "1-3"),
        head_aggregation(3), totals(88.0, 94.3), 1.54 / 1.92),
    Row("EM, enc-self, layers 1,2 (effective)", "li2019", EFFECTIVE,
        head_aggregation(2), totals(88.0, 92.2), 1.67 / 1.92),
    Row("EM, enc-self, layer 6", "li2019", heads("em", "enc-self", "6"),
        head_aggregation(1), totals(88.0, 90.1), 1.88 / 1.92),
    Row("EM, enc-self, layer 1", "li2019", heads("em", "enc-self", "1"),
        head_aggregation(1), totals(88.0, 90.1), 1.88 / 1.92),
    Row("effective, big", "li2019", EFFECTIVE,
        head_aggregation(2, "big"), totals(264, 297), size="big"),
)

DOU2019 = (
    Row("linear combination", "dou2019", layers("linear"),
        layer_aggregation("linear", 2), added(14.7), 1.57 / 1.79, 1.36 / 1.43,
        mismatch="equation 3 has L matrices of d x d a side; Ampomah et al. count the same"),
    Row("dynamic combination", "dou2019", layers("dynamic"),
        layer_aggregation("dynamic", 2), added(25.2), 1.50 / 1.79, 1.30 / 1.43),
    Row("dynamic routing of layers", "dou2019", layers("dynamic-routing"),
        layer_aggregation("dynamic-routing", 2), added(37.8), 1.37 / 1.79, 1.24 / 1.43),
    Row("EM routing of layers", "dou2019", layers("em-routing"),
        layer_aggregation("em-routing", 2), added(56.8), 1.10 / 1.79, 1.15 / 1.43,
        mismatch="equations 5 to 10 need 56.6M; the paper does not say what else it counts"),
    Row("EM routing of layers, encoder", "dou2019", layers("em-routing", "encoder"),
        layer_aggregation("em-routing", 1)),
    Row("EM routing of layers, decoder", "dou2019", layers("em-routing", "decoder"),
        layer_aggregation("em-routing", 1)),
    Row("EM routing of layers, own input", "dou2019",
        layers("em-routing") + " --layer-capsule-input own",
        layer_aggregation("em-routing, own", 2)),
    Row("EM routing of layers, big", "dou2019", layers("em-routing"),
        layer_aggregation("em-routing", 2, "big"), totals(264, 490), size="big"),
)

# Table 6: parameters in millions and training speed for n = 2 .. 6; the baseline has 61.2 and 3.65.
SOURCES: Dict[str, Tuple[Tuple[float, float], ...]] = {
    "M-00": ((67.5, 3.41), (73.8, 3.18), (80.1, 3.03), (86.4, 2.77), (92.7, 2.65)),
    "M-01": ((66.0, 3.45), (70.7, 3.20), (75.4, 3.06), (80.1, 2.93), (84.9, 2.74)),
    "M-10": ((67.5, 3.39), (73.8, 3.15), (80.1, 3.01), (86.4, 2.76), (92.7, 2.59)),
    "M-11": ((66.0, 3.44), (70.7, 3.16), (75.4, 3.01), (80.1, 2.83), (84.9, 2.70)),
}
AMPOMAH2020 = (
    Row("linear combination, encoder", "ampomah2020", layers("linear", "encoder"),
        layer_aggregation("linear", 1), totals(61.2, 62.8), 3.55 / 3.65),
    Row("iterative combination, encoder", "ampomah2020", layers("iterative", "encoder"),
        layer_aggregation("iterative", 1), totals(61.2, 77.0), 3.11 / 3.65),
    Row("transparent attention", "ampomah2020", layers("transparent", "encoder"),
        layer_aggregation("transparent", 1), totals(61.2, 61.2), 3.53 / 3.65),
    *(Row(f"{variant}, n = {n}", "ampomah2020", sources(variant, n),
          multi_layer_attention(variant, n), totals(61.2, millions), speed / 3.65)
      for variant, rows in SOURCES.items()
      for n, (millions, speed) in enumerate(rows, start=2)),
    Row("wider baseline (B1)", "ampomah2020",
        f"{PLAIN} --encoder-ffn-embed-dim 4096 --decoder-ffn-embed-dim 4096",
        wider_feed_forward(4096), totals(61.2, 86.5), 2.95 / 3.65,
        mismatch="the text has a filter size of 4098, which fits (25.22M); ours is a power of 2"),
    Row("deeper baseline (B2)", "ampomah2020", f"{PLAIN} --encoder-layers 10 --decoder-layers 10",
        more_layers(4), totals(61.2, 90.7), 2.60 / 3.65),
    *(Row(f"{variant}, IWSLT", "ampomah2020", sources(variant, 4),
          multi_layer_attention(variant, 4, "iwslt"), size="iwslt")
      for variant in SOURCES),
)

LI2021 = (
    Row("disagreement: subspace", "li2021", PLAIN, train=1.15 / 1.21,
        criterion=disagreement("subspace")),
    Row("disagreement: position", "li2021", PLAIN, train=1.14 / 1.21,
        criterion=disagreement("position")),
    Row("disagreement: output", "li2021", PLAIN, train=1.15 / 1.21,
        criterion=disagreement("output")),
    Row("disagreement: output, all three", "li2021", PLAIN, 0, totals(88, 88), 1.06 / 1.21,
        criterion=BEST),
    Row("disagreement and effective", "li2021", EFFECTIVE,
        head_aggregation(2), totals(88, 92), criterion=BEST),
    Row("disagreement, big", "li2021", PLAIN, 0, totals(264, 264), size="big", criterion=BEST),
    Row("disagreement and effective, big", "li2021", EFFECTIVE,
        head_aggregation(2, "big"), totals(264, 297), size="big", criterion=BEST),
    Row("disagreement, big, 8 heads", "li2021", PLAIN, 0, totals(264, 264),
        size="big", baseline=EIGHT_HEADS, criterion=BEST),
    Row("effective, big, 8 heads", "li2021", EFFECTIVE,
        head_aggregation(2, "big", heads=8), totals(264, 288), size="big", baseline=EIGHT_HEADS,
        mismatch="H d^2 + H d an attention, as in every other row"),
    Row("disagreement and effective, big, 8 heads", "li2021", EFFECTIVE,
        head_aggregation(2, "big", heads=8), totals(264, 288), size="big", baseline=EIGHT_HEADS,
        criterion=BEST, mismatch="H d^2 + H d an attention, as in every other row"),
)

DUAN2020 = (
    Row("capsule routing", "duan2020", capsules("both", "horizontal"), capsule_attention(6)),
    Row("capsule routing, big", "duan2020", capsules("both", "horizontal"),
        capsule_attention(6, "big"), Printed("1.6K", 0.0016, 0.00005), size="big"),
    Row("capsule routing, encoder", "duan2020", capsules("both"), capsule_attention(6)),
    Row("capsule routing, decoder", "duan2020", capsules("none", "horizontal")),
    Row("capsule routing, vertical", "duan2020", capsules("vertical"), capsule_attention(6)),
    Row("capsule routing, horizontal", "duan2020", capsules("horizontal")),
    Row("capsule routing, layers 1-3", "duan2020", capsules("both", layers="1-3"),
        capsule_attention(3)),
    Row("capsule routing, layers 4-6", "duan2020", capsules("both", layers="4-6"),
        capsule_attention(3)),
)
# fmt: on

OFF = Row("switches off", "", PLAIN)
ROWS: Dict[str, Row] = {
    row.name: row for row in (OFF, *LI2019, *DOU2019, *AMPOMAH2020, *LI2021, *DUAN2020)
}


def row_name(text: str) -> str:
    """The name of a row, as the type of a flag.

    Raises:
        argparse.ArgumentTypeError: there is no such row.
    """
    if text in ROWS:
        return text
    near = difflib.get_close_matches(text, ROWS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "--help names them all"
    raise argparse.ArgumentTypeError(f"{text!r} is no row: {hint}")
