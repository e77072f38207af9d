"""Whether the routing and the models can be compiled on this machine."""

from __future__ import annotations

import pytest

from capsnmt.routing.backend import compile_obstacle

OBSTACLE = compile_obstacle("cpu")
needs_compiler = pytest.mark.skipif(OBSTACLE is not None, reason=f"torch.compile {OBSTACLE}")
