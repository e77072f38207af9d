"""The versions of installed distributions, and our own."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path
from typing import Optional

import capsnmt


def installed_version(distribution: str) -> Optional[str]:
    """Return the version of a distribution; ``None`` if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def own_version() -> str:
    """Return our version, with the commit if the package is that of a git checkout."""
    git = ["git", "-C", str(Path(capsnmt.__file__).parent)]
    # an environment may lie in the checkout of another project
    ours = [*git, "ls-files", "--error-unmatch", "__init__.py"]
    try:
        subprocess.run(ours, check=True, capture_output=True)
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=12"],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return capsnmt.__version__
    return f"{capsnmt.__version__} (commit {described.stdout.strip()})"
