"""``python -m tests.faults.loads FOLDER NAME=VALUE...``: from_pretrained, as a program calls it.

The values are JSON; ``checkpoint_file`` and ``data_name_or_path`` are texts.
"""

from __future__ import annotations

import json
import sys

from capsnmt.models import CapsnmtTransformer


def main() -> None:
    """Load, and translate a line."""
    folder, *settings = sys.argv[1:]
    pairs = [setting.split("=", 1) for setting in settings]
    values = {k: v if k[-4:] in ("file", "path") else json.loads(v) for k, v in pairs}
    CapsnmtTransformer.from_pretrained(folder, **values).translate(["A man ."])


if __name__ == "__main__":
    main()
