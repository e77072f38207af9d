"""The folder of real data, which is not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("CAPSNMT_DATA", Path(__file__).resolve().parents[2] / "shared/data"))


def real_data(name: str) -> Path:
    """Return a part of the real data. Where it is absent, skip the test; with ``CI=1``, fail it."""
    path = FOLDER / name
    if not path.exists():
        missing = f"REAL DATA MISSING: {path} (set CAPSNMT_DATA)"
        if os.environ.get("CI") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    return path
