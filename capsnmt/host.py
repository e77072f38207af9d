"""The hosts we run on: which fairseq, on which Python."""

from __future__ import annotations

import importlib
import importlib.util
import sys

PYTHON_SINCE, PYTHON_BEFORE = (3, 9), (3, 13)
FORK = "ve-fairseq==0.12.3"
STOCK = "fairseq==0.12.2"
SUPPORTED_FAIRSEQ = "0.12."


def check_host() -> None:
    """Raise one line with the fix where capsnmt cannot run.

    Raises:
        ImportError: Python is out of range, no fairseq is installed, the installed one cannot be
            imported on this Python, or its version is not one we test.
    """
    running = ".".join(map(str, sys.version_info[:3]))
    if not PYTHON_SINCE <= sys.version_info[:2] < PYTHON_BEFORE:
        raise ImportError(
            f"capsnmt: Python {running} is not supported: use Python 3.11 or 3.12 (with {FORK}) "
            f"or Python 3.9 or 3.10 (with {STOCK})"
        )
    # Stock fairseq's dataclasses are refused by Python >= 3.11, the fork has no older wheels.
    wanted = FORK if sys.version_info >= (3, 11) else STOCK
    # Stock fairseq needs omegaconf 2.0.6, whose metadata newer pips refuse.
    older_pip = "" if wanted == FORK else "pip install 'pip<24.1' 'numpy<2' && "
    installer = f"{older_pip}pip install"
    if importlib.util.find_spec("fairseq") is None:
        raise ImportError(f"capsnmt: fairseq is not installed: {installer} {wanted}")
    try:
        fairseq = importlib.import_module("fairseq")
    except Exception as error:
        raise ImportError(
            f"capsnmt: the installed fairseq cannot be imported on Python {running} "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}): "
            f"pip uninstall fairseq ve-fairseq && {installer} {wanted}"
        ) from None
    version = getattr(fairseq, "__version__", "unknown")
    if not version.startswith(SUPPORTED_FAIRSEQ):
        raise ImportError(f"capsnmt: fairseq {version} is not supported: {installer} {wanted}")
