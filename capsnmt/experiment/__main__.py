"""``python -m capsnmt.experiment``."""

import sys

from capsnmt.experiment.cli import main

sys.exit(main())
