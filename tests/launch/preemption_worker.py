"""A process that a training starts; a spawned one imports this module only."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Send the signal to stop to this process; end with 7 if it lives on."""
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(7)
