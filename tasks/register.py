"""What fairseq imports of a ``--user-dir`` that is this checkout."""

from pathlib import Path

import capsnmt

if not hasattr(capsnmt, "__version__"):  # a checkout of the package's name is taken for it
    checkout = Path(__file__).resolve().parents[1]
    raise SystemExit(f"--user-dir is the checkout {checkout}; give {checkout / 'capsnmt'}")

import capsnmt.plugin
