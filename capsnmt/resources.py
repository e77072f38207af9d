"""Files of the project that are not Python: configurations and recipes."""

from __future__ import annotations

from pathlib import Path
from typing import List

PACKAGE = Path(__file__).resolve().parent
# Where a checkout keeps what a wheel has inside the package (setup.py maps them).
IN_CHECKOUT = {"configs": "configs", "recipes": "data_prep/recipes"}


def folder(kind: str) -> Path:
    """Return a folder of the project: in an installed package, or next to it in a checkout.

    Args:
        kind: ``configs`` or ``recipes``.
    """
    installed = PACKAGE / kind
    return installed if installed.is_dir() else PACKAGE.parent / IN_CHECKOUT[kind]


def names(kind: str) -> List[str]:
    """Return the names of the YAML files directly in a folder of the project, sorted."""
    return sorted(path.stem for path in folder(kind).glob("*.yaml"))
