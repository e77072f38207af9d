"""The order of the tests."""

from __future__ import annotations

import os
from typing import List

import pytest


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Deal the tests to parallel workers in turn, the long ones first.

    ``--dist worksteal`` gives every worker a stretch of the list to begin with; in the order of
    the files one of them would have all long tests, and the others nothing to do in the end.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    long = [item for item in items if item.get_closest_marker("system")]
    short = [item for item in items if not item.get_closest_marker("system")]
    items[:] = [
        item
        for worker in range(workers)
        for item in (*long[worker::workers], *short[worker::workers])
    ]
