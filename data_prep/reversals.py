#!/usr/bin/env python3
"""Write text of a task that a small model learns in seconds: each target is its source reversed.

``data_prep/reversals.py --output DIR`` writes 5,000 sentences of 2 to 5 words to ``DIR/train.src``
and their reversals to ``DIR/train.rev``, always the same.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

WORDS = [f"w{number}" for number in range(8)]
PAIRS = 5_000
LENGTHS = range(2, 6)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of the text")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    sources = [draw.choices(WORDS, k=draw.choice(LENGTHS)) for _ in range(PAIRS)]
    for language, sentences in (("src", sources), ("rev", [words[::-1] for words in sources])):
        text = "".join(f"{' '.join(words)}\n" for words in sentences)
        (folder / f"train.{language}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
