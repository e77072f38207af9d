"""Segmented text to a fairseq data-bin, by the installed fairseq-preprocess."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Optional, Tuple

from capsnmt.cli import ExecutionError
from capsnmt.corpora.parallel import map_jobs
from capsnmt.process import package_path


def binarise(arguments: List[str], destination: Path, lock: Optional[int]) -> None:
    """Run fairseq-preprocess, which writes the data-bin ``destination``, and holds ``lock``."""
    # Input is closed and output captured: the step prints nothing but its error.
    finished = subprocess.run(
        [sys.executable, "-m", "capsnmt.corpora.binarise", *arguments],
        env={**os.environ, **package_path()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        pass_fds=() if lock is None else (lock,),
    )
    if finished.returncode != 0:
        output = (finished.stderr or finished.stdout).strip().splitlines() or ["no error message"]
        raise ExecutionError(f"fairseq-preprocess ended with {finished.returncode}: {output[-1]}")
    # The log repeats the command line and would make equal data-bins differ.
    (destination / "preprocess.log").unlink(missing_ok=True)


class Pool:
    """What fairseq-preprocess uses of `multiprocessing.Pool`, which waits for killed workers."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.calls: List[Tuple[Callable[..., Any], Any, Any]] = []
        self.results: List[Any] = []

    def apply_async(self, function: Callable[..., Any], args: Any, kwds: Any = None) -> Any:
        """Note a call, whose result has ``get``."""
        number = len(self.calls)
        self.calls.append((function, args, kwds or {}))
        return SimpleNamespace(get=lambda: self.results[number])

    def close(self) -> None:
        """Do nothing: no calls are noted after `join`."""

    def join(self) -> None:
        """Do the calls."""
        self.results = [*map_jobs(_call, self.calls, self.processes)]


def _call(function: Callable[..., Any], args: Any, kwds: Any) -> Any:
    return function(*args, **kwds)


if __name__ == "__main__":
    multiprocessing.Pool = Pool  # type: ignore
    from fairseq_cli.preprocess import cli_main

    cli_main()
