"""Segmented text to a fairseq data-bin, by the installed fairseq-preprocess."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from capsnmt.cli import ExecutionError

PREPROCESS = "fairseq_cli.preprocess"


def binarise_command(
    prefixes: dict[str, Path],
    languages: tuple[str, str],
    destination: Path,
    workers: int,
    joined: bool = True,
) -> list[str]:
    """Return the fairseq-preprocess command.

    Args:
        prefixes: split -> path of its two files without ``.LANGUAGE``; the splits in order.
        languages: source and target.
        destination: the data-bin.
        workers: number of processes.
        joined: one dictionary for both languages, or one for each.
    """
    tests = [str(path) for split, path in prefixes.items() if split not in {"train", "valid"}]
    command = [sys.executable, "-m", PREPROCESS]
    command += ["--joined-dictionary"] if joined else []
    command += ["--source-lang", languages[0], "--target-lang", languages[1]]
    command += ["--trainpref", str(prefixes["train"]), "--validpref", str(prefixes["valid"])]
    command += ["--testpref", ",".join(tests)]
    return [*command, "--destdir", str(destination), "--workers", str(workers)]


def binarise(command: list[str], destination: Path) -> None:
    """Run ``command``, which writes the data-bin ``destination``.

    Raises:
        ExecutionError: fairseq-preprocess failed; the message quotes its last line.
    """
    # Input is closed and output captured: the step prints nothing but its error.
    ours = ["capsnmt.corpora.binarise" if word == PREPROCESS else word for word in command]
    finished = subprocess.run(
        ours, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        output = (finished.stderr or finished.stdout).strip().splitlines() or ["no error message"]
        fix = f" (install fairseq for {sys.executable}: see the documentation of hosts)"
        raise ExecutionError(
            f"fairseq-preprocess ended with {finished.returncode}: {output[-1]}"
            f"{fix if 'No module named' in output[-1] else ''}"
        )
    # The log repeats the command line and would make equal data-bins differ.
    (destination / "preprocess.log").unlink(missing_ok=True)


class BreakingPool(ProcessPoolExecutor):
    """What fairseq-preprocess uses of `multiprocessing.Pool`, which waits for killed workers."""

    def apply_async(
        self, function: Callable[..., Any], args: tuple = (), kwds: dict[str, Any] | None = None
    ) -> Future[Any]:
        """Start a call; the result's ``get`` raises if a worker was killed."""
        future = self.submit(function, *args, **(kwds or {}))
        future.get = future.result  # type: ignore[attr-defined]
        return future

    def close(self) -> None:
        """Do nothing: `join` waits for the calls."""

    join = ProcessPoolExecutor.shutdown


def main() -> None:
    """Run fairseq-preprocess with workers that end it when one is killed."""
    multiprocessing.Pool = lambda processes: BreakingPool(processes)  # type: ignore
    from fairseq_cli.preprocess import cli_main

    cli_main()


if __name__ == "__main__":
    main()
