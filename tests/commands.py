"""Real command lines, run as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from capsnmt.files import locked
from tests.support import PLUGIN

TINY = [
    *("--encoder-embed-dim", "16", "--decoder-embed-dim", "16"),
    *("--encoder-ffn-embed-dim", "16", "--decoder-ffn-embed-dim", "16"),
]
ON_CPU = ["--cpu", "--num-workers", "0", "--no-progress-bar"]


def environment() -> Dict[str, str]:
    """Ours, without what would switch safe loading off, and one thread for each of many tests."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_FORCE")}
    return {**own, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(PLUGIN).parent)}


def command(
    module: str, *arguments: object, stdin: str = "", python: str = sys.executable
) -> subprocess.CompletedProcess:
    """Run ``python -m module arguments`` and return it ended, output and errors as text."""
    return subprocess.run(
        [python, "-m", module, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment(),
        check=False,
    )


def succeed(module: str, *arguments: object, stdin: str = "", python: str = sys.executable) -> str:
    """The standard output of a command that must succeed."""
    done = command(module, *arguments, stdin=stdin, python=python)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def train(
    data: Path, save: Path, arch: str, updates: int, *flags: object, python: str = sys.executable
) -> str:
    """Train a small model of the architecture up to a number of updates; its log."""
    done = command(
        "fairseq_cli.train",
        *(data, "--user-dir", PLUGIN, "--arch", arch, *TINY, "--save-dir", save, *ON_CPU),
        *("--optimizer", "adam", "--lr", "0.005", "--batch-size", "8", "--dropout", "0.1"),
        *("--share-all-embeddings", "--max-update", updates, "--save-interval-updates", "2"),
        *("--log-interval", "1", *flags),
        python=python,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def hypotheses(generated: str) -> List[str]:
    """The H- lines of fairseq-generate or fairseq-interactive, by sentence."""
    lines = [line.split("\t") for line in generated.splitlines() if line.startswith("H-")]
    return [line[2] for line in sorted(lines, key=lambda line: int(line[0][2:]))]


def scores(generated: str) -> list:
    """The scores of the hypotheses of fairseq-generate, in its order."""
    return [float(line.split("\t")[1]) for line in generated.splitlines() if line[:2] == "H-"]


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the test run that the first of the parallel workers to need it fills."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / name
    with locked(folder.with_suffix(".lock"), busy=f"{name} is never made", patience=300):
        if not (folder / "made").exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            (folder / "made").touch()
    return folder
