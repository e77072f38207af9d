"""Aggregation of attention heads: routing (Li et al. 2019), gated, talking and composed heads."""

from capsnmt.modules.algorithms import OF_HEADS

from .composed import HeadComposition
from .gated import HeadGate
from .routing import HeadRouting
from .talking import HeadMixing

__all__ = ["HEAD_AGGREGATIONS", "HeadComposition", "HeadGate", "HeadMixing", "HeadRouting"]

HEAD_AGGREGATIONS = ("linear", *OF_HEADS, "gated", "talking", "composed")
