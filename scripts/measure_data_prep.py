"""Time and peak memory of every step of data preparation, on synthetic text of WMT17's shape.

Processor time is that of all processes; other work on the machine changes it little.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from capsnmt.cli import OneLineParser, positive, run_command
from capsnmt.corpora.prepare import Preparation
from capsnmt.corpora.recipe import Piece, Source, load_recipe
from capsnmt.steps import Step

WORDS, CHARACTERS, LETTERS = 200_000, 5_000, list("etaoinshrdlucmfwypvbgkjqxz")


def memory_of_tree(process: int) -> int:
    """Return the KiB of memory of a process and all below it, each shared page counted once."""
    try:
        folder = Path(f"/proc/{process}")
        below = " ".join(path.read_text() for path in folder.glob("task/*/children"))
        own = next(line for line in (folder / "smaps_rollup").open() if line.startswith("Pss:"))
    except OSError:  # it has ended
        return 0
    return int(own.split()[1]) + sum(map(memory_of_tree, map(int, below.split())))


def zipf(items: list[str], chance: random.Random, count: int) -> list[str]:
    """Draw items by Zipf's law: approximately the inverse of its distribution function."""
    return [items[int(len(items) ** chance.random()) - 1] for _ in range(count)]


def synthetic_pairs(lines: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield Chinese and English lines whose words follow Zipf's law."""
    chance = random.Random(seed)
    words = ["".join(zipf(LETTERS, chance, chance.randint(2, 11))) for _ in range(WORDS)]
    characters = [chr(0x4E00 + 4 * number) for number in range(CHARACTERS)]
    for _ in range(lines):
        length = max(3, int(chance.gauss(24, 8)))
        english = " ".join(zipf(words, chance, length)).capitalize()
        chinese = "".join(zipf(characters, chance, int(length * 1.6)))
        yield f"{chinese}，{chance.randint(1, 99)}。", f"{english}, {chance.randint(1, 99)}."


def measured(step: Step, lines: int) -> str:
    """Run a step, and return its row of the table."""
    done, peaks = threading.Event(), [memory_of_tree(os.getpid())]

    def watch() -> None:
        while not done.wait(0.2):
            peaks.append(memory_of_tree(os.getpid()))

    threading.Thread(target=watch, daemon=True).start()
    step.outputs[0].parent.mkdir(parents=True, exist_ok=True)
    start, before = time.monotonic(), sum(os.times()[:4])
    assert step.function is not None
    step.function(list(step.outputs))
    seconds, processor = time.monotonic() - start, sum(os.times()[:4]) - before
    done.set()
    row = f"{step.name} | {lines / seconds:,.0f} | {seconds:,.1f} s | {processor:,.1f} s"
    return f"| {row} | {max(peaks) / 2**10:,.0f} MiB |"


def measure() -> None:
    """Measure, and print the table."""
    parser = OneLineParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=positive, default=1_000_000, help="pairs")
    parser.add_argument("--workers", type=positive, default=1, help="processes")
    options = parser.parse_args()
    sizes = {"train": options.lines, "valid": 2000, "test": 2000}
    recipe = structs.replace(
        load_recipe("wmt17_zh_en"),
        files={f"{split}.{side}": Source() for split in sizes for side in ("zh", "en")},
        splits={split: (Piece(file=f"{split}.{{language}}"),) for split in sizes},
        lines={},
    )
    with tempfile.TemporaryDirectory(prefix="measure_data_prep.") as name:
        folder = Path(name)
        for seed, (split, size) in enumerate(sizes.items(), 1):
            for side, sentences in zip(("zh", "en"), zip(*synthetic_pairs(size, seed))):
                (folder / f"{split}.{side}").write_text("\n".join(sentences) + "\n", "utf-8")
        print("| step | lines/s | time | processor time | peak memory |\n|---|---|---|---|---|")
        for step in Preparation(recipe, folder / "out", folder, workers=options.workers).steps():
            print(measured(step, options.lines), flush=True)


if __name__ == "__main__":
    sys.exit(run_command(measure))
