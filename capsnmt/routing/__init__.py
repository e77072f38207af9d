"""Routing-by-agreement operators: pure functions from votes to output capsules.

No parameters, no fairseq. Any number of leading dimensions, any floating dtype; the arithmetic
is fp32 or better, the result has the votes' dtype.
"""

from .backend import BACKENDS, routing_backend
from .em import em_routing
from .recording import RoutingRecord, record_routing
from .simple import simple_routing
from .squash import squash

__all__ = [
    "BACKENDS",
    "RoutingRecord",
    "em_routing",
    "record_routing",
    "routing_backend",
    "simple_routing",
    "squash",
]
