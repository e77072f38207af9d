"""Python's command lines, forked from a process that has imported fairseq.

``python -m fairseq_cli.train`` spends four seconds on imports before it begins, and the tests start
hundreds of them. Here the imports are made once, in a process that has neither the plugin nor
pytest; each command line is a fork of it and finds what a fresh interpreter would. Nothing of the
project may be imported at the top: the forks import this module first.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import runpy
import sys
import traceback
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Dict, Iterator, List

# What every command of fairseq imports, and none of its commands.
PRELOADED = ["fairseq", "fairseq.tasks", "fairseq.criterions", "fairseq.models", "sacrebleu"]
_context = multiprocessing.get_context("forkserver")


@contextmanager
def _environment(values: Dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def start(
    module: str, arguments: List[str], environment: Dict[str, str], streams: List[Path]
) -> multiprocessing.process.BaseProcess:
    """Start ``python -m module arguments`` with files for its input, output and errors."""
    with _environment(environment):  # of the first process, which all others come from
        _context.set_forkserver_preload(PRELOADED)
        forkserver.ensure_running()
    process = _context.Process(target=_run, args=(module, arguments, environment, streams))
    process.start()
    return process


def _run(
    module: str, arguments: List[str], environment: Dict[str, str], streams: List[Path]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, (path, flags) in enumerate(
        zip(streams, (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND))
    ):
        os.dup2(os.open(path, flags), number)
    # multiprocessing has closed it
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  lives as long as this
    # The commands set up the log before they import fairseq, which else does it in its own way.
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
