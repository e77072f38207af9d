"""Command lines forked from a process that has imported fairseq.

``python -m fairseq_cli.train`` spends four seconds on imports, and the tests start hundreds of such
commands. Here fairseq is imported once, in a process without the plugin and without pytest. Each
command is a fork of it, in the state of a fresh interpreter. This module must not import anything
of the project at the top, because the forks import it first.
"""

from __future__ import annotations

import gc
import importlib
import logging
import multiprocessing
import os
import runpy
import sys
import tempfile
import traceback
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Dict, Iterator, List

# What every fairseq command imports, without the commands themselves. Those of torch and hydra
# are imported late: by the first optimizer, and by the first configuration.
PRELOADED = [
    *("fairseq", "fairseq.tasks", "fairseq.criterions", "fairseq.models", "fairseq.trainer"),
    *("fairseq.model_parallel.megatron_trainer", "fairseq.nan_detector"),
    *("fairseq.quantization_utils", "sacrebleu", "torch._dynamo", "torch.distributed.fsdp"),
    *("hydra.experimental", "hydra._internal.hydra", "hydra._internal.config_loader_impl"),
    *("hydra.core.plugins", "hydra.core.override_parser.overrides_parser"),
]
# the variable that names the interpreter with which a command starts others
INTERPRETER = "CAPSNMT_TESTS_INTERPRETER"
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
    """Start ``python -m module arguments`` with files as its input, output and errors."""
    with _environment(environment):  # for the first process, from which all others are forked
        _context.set_forkserver_preload(PRELOADED)
        forkserver.ensure_running()
    process = _context.Process(target=_run, args=(module, arguments, environment, streams))
    process.start()
    return process


def _run(
    module: str, arguments: List[str], environment: Dict[str, str], streams: List[Path]
) -> None:
    for number, (path, flags) in enumerate(
        zip(streams, (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND))
    ):
        os.dup2(os.open(path, flags), number)
    become(module, arguments, environment)


def execute(module: str) -> None:
    """Do what ``python -m module`` does, or call the entry point ``module:function``."""
    name, _, function = module.partition(":")
    if function:
        sys.exit(getattr(importlib.import_module(name), function)())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def become(module: str, arguments: List[str], environment: Dict[str, str]) -> None:
    """Turn this fork into ``python -m module arguments``, or the entry point ``module:function``.

    Its three streams are those of the descriptors 0, 1 and 2.
    """
    # as a fresh interpreter, and not that of the first process and of the tests
    tempfile.tempdir = None
    multiprocessing.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]
    # or its workers would start by this context, and import everything
    multiprocessing.set_start_method(None, force=True)  # type: ignore[arg-type]
    gc.freeze()  # a full collection would visit all that was imported: 0.3 s a command
    os.environ.clear()
    os.environ.update(environment)
    # multiprocessing has closed the input, and the output knew another file
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  lives as long as this
    sys.stdout = open(1, "w", 1, encoding="utf-8", closefd=False)  # noqa: SIM115
    # The commands configure logging before they import fairseq; undo what fairseq has configured.
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    sys.argv = [module, *arguments]
    sys.executable = environment.get(INTERPRETER, sys.executable)
    try:
        execute(module)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
