"""``python -m tests.frozen --write [CASE...]``: record what the commands do now."""

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.frozen import cases  # noqa: F401  registers them
from tests.frozen.kit import CASES, World, differences


def main() -> int:
    """Write the goldens of all cases, or of those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("--write", action="store_true", required=True, help="record")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these (default: all)")
    args = parser.parse_args()
    if os.environ.get("CI") in ("1", "true"):
        print("error: CI=1: continuous integration compares, it records nothing", file=sys.stderr)
        return 2
    if sys.version_info < (3, 11):
        print("error: record on the main host, Python 3.11 or later", file=sys.stderr)
        return 2
    if unknown := sorted(set(args.cases) - set(CASES)):
        print(f"error: {unknown[0]}: no such case; use {', '.join(CASES)}", file=sys.stderr)
        return 2
    with TemporaryDirectory() as name:
        world = World(Path(name))
        for case in CASES.values():
            if args.cases and case.name not in args.cases:
                continue
            text = case.text(world)
            changed = differences(case, text)
            if changed:
                case.path.write_text(text, "utf-8")
            print(f"{case.name}: {'recorded' if changed else 'as before'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
