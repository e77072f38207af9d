"""What a machine may lack: the real data, which are not part of the repository, and libraries."""

import importlib
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

FOLDER = Path(os.environ.get("CAPSNMT_DATA", Path(__file__).resolve().parents[2] / "shared/data"))


def missing(what: str) -> NoReturn:
    """Skip a test for want of something. With ``CI=1`` it fails."""
    if os.environ.get("CI") == "1":
        pytest.fail(what)
    pytest.skip(what)


def real_data(name: str) -> Path:
    """Return a part of the real data. Where it is absent, skip the test; with ``CI=1``, fail it."""
    path = FOLDER / name
    if not path.exists():
        missing(f"REAL DATA MISSING: {path} (set CAPSNMT_DATA)")
    return path


def library(name: str) -> Any:
    """Return a module of a library that the environment of the tests has; the same without it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"NOT TESTED: {name} is not installed (pip install {name})")
