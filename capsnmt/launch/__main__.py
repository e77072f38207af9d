"""``python -m capsnmt.launch``."""

import sys

from capsnmt.launch.cli import main

sys.exit(main())
