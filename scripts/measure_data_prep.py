"""Lines a second and peak memory of every step of data preparation, on synthetic text.

``python scripts/measure_data_prep.py --lines 1000000 --workers 2`` prepares Chinese-English text
of WMT17's shape and prints a Markdown table, with an estimate of the time for WMT17's 20.6M pairs
on more cores. The estimate uses processor time, which other work on the machine does not change. It
assumes that a step that runs on all cores scales with them. Learning BPE, one process for each
language, does not grow with the number of lines: it depends on the vocabulary.
"""

from __future__ import annotations

import os
import platform
import random
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from capsnmt.cli import OneLineParser, positive, run_command  # noqa: E402
from capsnmt.corpora.prepare import STEPS, Preparation  # noqa: E402
from capsnmt.corpora.recipe import load_recipe  # noqa: E402
from capsnmt.steps import Step, StepRecords, run_steps  # noqa: E402

WMT17_LINES = 20_600_000
PARALLEL = ("tokenise", "clean", "segment", "binarise")
LEARNED = "learn subwords"
SECONDS_BETWEEN_SAMPLES = 0.2
WORDS, CHARACTERS = 200_000, 5_000
MEAN_WORDS = 24


@dataclass
class Measurement:
    """The cost of one step.

    Attributes:
        name: the step.
        seconds: wall-clock time.
        processor: seconds of processor time, of all processes.
        peak: bytes of memory of the process and all below it, each shared page counted once.
    """

    name: str
    seconds: float = 0.0
    processor: float = 0.0
    peak: int = 0


def _children(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from _children(child)


def memory_of_tree() -> int:
    """Return the proportional set size, in bytes, of this process and all below it."""
    total = 0
    for process in (os.getpid(), *_children(os.getpid())):
        try:
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:  # it has ended
            continue
        total += next(
            int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")
        )
    return total * 1024


@contextmanager
def measured(measurement: Measurement) -> Iterator[None]:
    """Record the time and the peak memory of the block in `measurement`."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(SECONDS_BETWEEN_SAMPLES):
            measurement.peak = max(measurement.peak, memory_of_tree())

    watcher = threading.Thread(target=watch)
    measurement.peak = memory_of_tree()
    watcher.start()
    start, before = time.monotonic(), sum(os.times()[:4])
    try:
        yield
    finally:
        measurement.seconds = time.monotonic() - start
        measurement.processor = sum(os.times()[:4]) - before
        done.set()
        watcher.join()
        print(f"  {measurement}", file=sys.stderr, flush=True)


def _zipf(items: list[str], rng: random.Random, count: int) -> list[str]:
    # Approximate inverse of the distribution function of Zipf's law with exponent 1.
    return [items[int(len(items) ** rng.random()) - 1] for _ in range(count)]


def synthetic_pairs(lines: int, seed: int = 1) -> Iterator[tuple[str, str]]:
    """Yield Chinese and English lines whose words follow Zipf's law."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(_zipf(list(letters), rng, rng.randint(2, 11))) for _ in range(WORDS)]
    characters = [chr(0x4E00 + 4 * number) for number in range(CHARACTERS)]
    for _ in range(lines):
        length = max(3, int(rng.gauss(MEAN_WORDS, 8)))
        english = " ".join(_zipf(words, rng, length)).capitalize()
        chinese = "".join(_zipf(characters, rng, int(length * 1.6)))
        yield f"{chinese}，{rng.randint(1, 99)}。", f"{english}, {rng.randint(1, 99)}."


def write_corpus(folder: Path, lines: int) -> Path:
    """Write an archive of `lines` pairs, and the recipe that prepares it as WMT17's is."""
    sizes = {"train": lines, "valid": 2000, "test": 2000}
    for seed, (split, size) in enumerate(sizes.items(), 1):
        pairs = list(synthetic_pairs(size, seed))
        for side, sentences in zip(("zh", "en"), zip(*pairs)):
            text = "".join(f"{sentence}\n" for sentence in sentences)
            (folder / f"{split}.{side}").write_text(text, encoding="utf-8")
    with tarfile.open(folder / "corpus.tgz", "w:gz", compresslevel=6) as tar:
        for split in sizes:
            for side in ("zh", "en"):
                tar.add(folder / f"{split}.{side}", f"corpus/{split}.{side}")
                (folder / f"{split}.{side}").unlink()
    recipe = {
        "description": f"{lines:,} synthetic pairs",
        "pair": "zh-en",
        "files": {"corpus.tgz": ""},
        "splits": {
            split: [{"file": "corpus.tgz", "members": f"{split}.{{language}}"}] for split in sizes
        },
        "tokenisers": {"zh": "jieba", "en": "moses"},
        "cleaning": {"max-length": 49, "deduplicate": True},
        "segmentation": {"size": 32000, "joint": False},
    }
    path = folder / "synthetic.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return path


def measured_steps(recipe: Path, folder: Path, workers: int) -> list[Measurement]:
    """Prepare `recipe` and return the cost of each of its larger steps, in order."""
    measurements: list[Measurement] = []

    def timed(step: Step) -> Step:
        function = step.function
        assert function is not None

        def run(paths: list[Path]) -> Any:
            measurements.append(one := Measurement(step.name))
            with measured(one):
                return function(paths)

        return replace(step, function=run)

    preparation = Preparation(
        load_recipe(str(recipe)), folder, local=recipe.parent, workers=workers
    )
    run_steps([timed(step) for step in preparation.steps()], StepRecords(folder / STEPS), print)
    return [one for one in measurements if "valid" not in one.name and "test" not in one.name]


def table(measurements: list[Measurement], lines: int, cores: int) -> Iterator[str]:
    """Yield the Markdown table."""
    yield (
        f"| step | cores | lines/s | lines a processor second | peak memory "
        f"| 20.6M lines on {cores} cores |"
    )
    yield "|---|---|---|---|---|---|"
    total = 0.0
    for one in measurements:
        parallel = one.name.startswith(PARALLEL)
        learned = one.name == LEARNED
        growth = 1.0 if learned else WMT17_LINES / lines
        minutes = one.processor / 60 * growth / (cores if parallel else 1)
        total += minutes
        yield (
            f"| {one.name} | {'all' if parallel else 'one each' if learned else 'one'} "
            f"| {f'({one.seconds:,.0f} s)' if learned else f'{lines / one.seconds:,.0f}'} "
            f"| {f'({one.processor:,.0f} s)' if learned else f'{lines / one.processor:,.0f}'} "
            f"| {one.peak / 2**20:,.0f} MiB | {minutes:,.1f} min |"
        )
    peak = max(one.peak for one in measurements)
    yield f"| all | | | | {peak / 2**20:,.0f} MiB | {total:,.0f} min |"


def measure() -> None:
    """Measure, and print the table."""
    parser = OneLineParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=positive, default=1_000_000, help="pairs")
    parser.add_argument("--workers", type=positive, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--cores", type=positive, default=16, help="cores of the estimate")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="measure_data_prep."))
    try:
        recipe = write_corpus(folder, options.lines)
        measurements = measured_steps(recipe, folder / "out", options.workers)
    finally:
        shutil.rmtree(folder)
    print(f"{options.lines:,} pairs, {options.workers} processes, {platform.machine()}, ", end="")
    print(f"Python {platform.python_version()}")
    print("\n".join(table(measurements, options.lines, options.cores)))


if __name__ == "__main__":
    sys.exit(run_command(measure))
