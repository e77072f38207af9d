"""The server that command lines are forked from: ``python -m tests.forked ADDRESS``.

``python -m fairseq_cli.train`` spends four seconds on imports, and the tests start hundreds of such
commands. Here fairseq is imported once, in a process without the plugin and without pytest. Each
command is a fork of it, in the state of a fresh interpreter. This module must not import anything
of the project at the top, because the forks import it first. :mod:`tests.interpreter` calls it.
"""

import gc
import importlib
import json
import logging
import multiprocessing
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from typing import Any, Dict, List, Optional

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
    # as a fresh interpreter at a terminal, and not that of the server, which nohup may have started
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
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


def serve(address: str) -> None:
    """Fork the commands that are asked for, until the input ends with the process of the tests."""
    commands: Dict[multiprocessing.process.BaseProcess, socket.socket] = {}
    context = multiprocessing.get_context("fork")
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(f"{address}.part")
        listener.listen(64)
        os.rename(f"{address}.part", address)  # callers wait in the queue while it imports
        for name in PRELOADED:
            with suppress(ImportError):  # the hosts differ
                importlib.import_module(name)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, to all its processes
        signal.signal(signal.SIGCHLD, lambda *_: None)
        ended, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        for each in (0, ended, listener):
            selector.register(each, selectors.EVENT_READ)
        while True:
            called = [key.fileobj for key, _ in selector.select()]
            if 0 in called:
                return
            if ended in called:
                os.read(ended, 4096)
            for command in [each for each in commands if each.exitcode is not None]:
                with commands.pop(command) as connection:
                    _tell(connection, command.exitcode)
            if listener in called:
                connection, _ = listener.accept()
                command = context.Process(target=_run, args=(connection,))
                command.start()
                _tell(connection, command.pid)
                commands[command] = connection


def _tell(connection: socket.socket, number: Optional[int]) -> None:
    with suppress(BrokenPipeError):  # whoever asked may have been killed
        connection.sendall(b"%16d" % number)


def _run(connection: socket.socket) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    size, streams, _, _ = socket.recv_fds(connection, 10, 3)
    request: List[Any] = json.loads(connection.recv(int(size), socket.MSG_WAITALL))
    connection.close()
    (sys.executable, *arguments), folder, environment, paths = request
    os.chdir(folder)
    flags = os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND
    for number, stream in enumerate(streams or map(os.open, paths, flags)):
        os.dup2(stream, number)
        os.close(stream)
    _, module, *arguments = arguments[arguments.index("-m") :]  # torchrun gives -u as well
    become(module, arguments, environment)


if __name__ == "__main__":
    serve(sys.argv[1])
