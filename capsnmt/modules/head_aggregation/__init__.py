"""Aggregation of attention heads: routing (Li et al. 2019), gated heads, talking heads."""

from __future__ import annotations

from .gated import HeadGate
from .routing import ROUTINGS, HeadRouting
from .talking import HeadMixing

__all__ = ["HEAD_AGGREGATIONS", "ROUTINGS", "HeadGate", "HeadMixing", "HeadRouting"]

HEAD_AGGREGATIONS = ("linear", *ROUTINGS, "gated", "talking")
