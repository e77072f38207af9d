"""The versions of installed distributions."""

from __future__ import annotations

from importlib import metadata
from typing import Optional


def installed_version(distribution: str) -> Optional[str]:
    """Return the version of a distribution; ``None`` if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
