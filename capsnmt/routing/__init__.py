"""Routing-by-agreement operators: pure functions from votes to output capsules.

The operators have no parameters and need no fairseq. They accept any number of leading dimensions
and any floating dtype, compute in fp32 or better and return the dtype of the votes. Values and
gradients are finite for votes up to 1e4, equal or not, for any input activation in 0..1 and for T
from 1 to 10.
"""

from .agreement import squash
from .backend import BACKENDS, check_backend
from .dynamic import dynamic_routing
from .em import em_routing
from .horizontal import horizontal_routing
from .inverted import inverted_routing
from .recording import RoutingRecord, record_routing
from .simple import simple_routing
from .vertical import vertical_routing

__all__ = [
    "BACKENDS",
    "RoutingRecord",
    "check_backend",
    "dynamic_routing",
    "em_routing",
    "horizontal_routing",
    "inverted_routing",
    "record_routing",
    "simple_routing",
    "squash",
    "vertical_routing",
]
