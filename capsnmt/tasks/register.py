"""Register everything, whatever fairseq imports of a ``--user-dir`` next."""

from pathlib import Path

import capsnmt

if not hasattr(capsnmt, "__version__"):
    # A checkout's folder, which has the package's name, was imported in its place. fairseq then
    # imports its ``tasks``, which is a link to this folder.
    package = Path(__file__).resolve().parents[1]
    raise SystemExit(f"--user-dir is the checkout {package.parent}; give {package}")

import capsnmt.plugin
