"""Aggregation of attention heads (Li et al. 2019)."""

from __future__ import annotations

from .routing import ROUTINGS, HeadRouting

__all__ = ["HEAD_AGGREGATIONS", "ROUTINGS", "HeadRouting"]

HEAD_AGGREGATIONS = ("linear", *ROUTINGS)
