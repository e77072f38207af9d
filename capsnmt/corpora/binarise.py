"""Segmented text to a fairseq data-bin, by the installed fairseq-preprocess."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Callable, List

from capsnmt.cli import ExecutionError
from capsnmt.process import package_path


def binarise(arguments: List[str], destination: Path) -> None:
    """Run fairseq-preprocess, which writes the data-bin ``destination``."""
    # Input is closed and output captured: the step prints nothing but its error.
    finished = subprocess.run(
        [sys.executable, "-m", "capsnmt.corpora.binarise", *arguments],
        env={**os.environ, **package_path()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        output = (finished.stderr or finished.stdout).strip().splitlines() or ["no error message"]
        raise ExecutionError(f"fairseq-preprocess ended with {finished.returncode}: {output[-1]}")
    # The log repeats the command line and would make equal data-bins differ.
    (destination / "preprocess.log").unlink(missing_ok=True)


class BreakingPool(ProcessPoolExecutor):
    """What fairseq-preprocess uses of `multiprocessing.Pool`, which waits for killed workers."""

    def apply_async(self, function: Callable[..., Any], args: Any, kwds: Any = None) -> Any:
        """Start a call; the result's ``get`` raises if a worker was killed."""
        future: Any = self.submit(function, *args, **(kwds or {}))
        future.get = future.result
        return future

    def close(self) -> None:
        """Do nothing: `join` waits for the calls."""

    join = ProcessPoolExecutor.shutdown


if __name__ == "__main__":
    multiprocessing.Pool = lambda processes: BreakingPool(processes)  # type: ignore
    from fairseq_cli.preprocess import cli_main

    cli_main()
