"""Files of the project that are not Python: configurations and recipes."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# Where a checkout keeps what a wheel has inside the package (setup.py maps them).
IN_CHECKOUT = {"configs": "configs", "recipes": "data_prep/recipes"}


def folder(name: str) -> Path:
    """The folder of this name: inside an installed package, beside the package in a checkout.

    Args:
        name: ``configs`` or ``recipes``.
    """
    installed = PACKAGE / name
    return installed if installed.is_dir() else PACKAGE.parent / IN_CHECKOUT[name]
