"""Routing-by-agreement operators: pure functions from votes to output capsules.

No parameters, no fairseq. Any number of leading dimensions, any floating dtype; the arithmetic
is fp32 or better, the result has the votes' dtype. Values and gradients are finite for votes up to
1e4, equal or not, any input activation in 0..1, and T from 1 to 10.
"""

from .backend import BACKENDS, check_backend, routing_backend
from .dynamic import dynamic_routing
from .em import em_routing
from .horizontal import horizontal_routing
from .recording import RoutingRecord, record_routing
from .simple import simple_routing
from .squash import squash
from .vertical import vertical_routing

__all__ = [
    "BACKENDS",
    "RoutingRecord",
    "check_backend",
    "dynamic_routing",
    "em_routing",
    "horizontal_routing",
    "record_routing",
    "routing_backend",
    "simple_routing",
    "squash",
    "vertical_routing",
]
