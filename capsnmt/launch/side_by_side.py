"""Runs in processes of their own, several at a time, each with GPUs of its own."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from pathlib import Path
from typing import Collection, Dict, List, Mapping, Sequence, Set

import torch

from capsnmt.cli import ConfigurationError, ExecutionError, Stopped
from capsnmt.launch.execute import set_up
from capsnmt.launch.progress import print_line
from capsnmt.launch.run import Run, environment, python
from capsnmt.runs.records import Device

VISIBLE = "CUDA_VISIBLE_DEVICES"


def execute_side_by_side(runs: Sequence[Run], jobs: int, finished: List[Run]) -> None:
    """Execute runs in processes of their own, several at a time; the output of each in its folder.

    Those that end well are added to ``finished``. If one fails, the others are finished first.
    After a stop signal, all have ended.
    """
    named = {run.folder.path: run for run in runs}
    waiting = {**named}
    running: Dict[Path, subprocess.Popen[bytes]] = {}
    free, taken = _shares(runs[0].device, jobs), {}
    failed: Set[Path] = set()
    refused: List[Exception] = []
    try:
        while waiting or running:
            for path, run in list(waiting.items()):
                earlier = {folder.path for folder in run.earlier()}
                if earlier & failed:
                    del waiting[path]
                    failed.add(path)
                    first = named[min(earlier & failed)]
                    print_line(f"== {run.title}: not started, as {first.title} failed")
                elif free and not earlier & {*waiting, *running}:
                    del waiting[path]
                    try:
                        running[path] = _start(run, free[0])
                    except (ConfigurationError, ExecutionError, OSError) as error:
                        failed.add(path)
                        refused.append(error)
                        print_line(f"== {run.title}: not started: {error}")
                    else:
                        taken[path] = free.pop(0)
            for path in [path for path, child in running.items() if child.poll() is not None]:
                status = running.pop(path).returncode
                ended = f"failed with exit status {status}" if status else "done"
                if status:
                    failed.add(path)
                else:
                    finished.append(named[path])
                free.append(taken[path])
                print_line(f"== {named[path].title}: {ended}")
            time.sleep(0.1)
    finally:
        _end(running.values())
    if refused:
        raise refused[0]
    if failed:
        names = "; ".join(run.title for path, run in named.items() if path in failed)
        raise ExecutionError(f"{names}: failed: see launch.log in the run's folder")


def _end(children: Collection[subprocess.Popen[bytes]]) -> None:
    """Ask the runs to end, and wait for them. A second stop signal is passed on: they kill then."""
    for child in children:
        child.terminate()
    try:
        for child in children:
            child.wait()
    except Stopped:
        _end(children)
        raise


def _shares(device: Device, jobs: int) -> List[Dict[str, str]]:
    """Return the variables that show each of several jobs its GPUs.

    **D**: they are its own as far as those that this process sees suffice, and then shared in turn:
    a GPU may hold several small models.
    """
    if not device.gpus or device.nodes > 1:
        return [{}] * jobs
    seen = torch.cuda.device_count()
    given = os.environ.get(VISIBLE)
    gpus = itertools.cycle(map(str, range(seen)) if given is None else given.split(",")[:seen])
    return [{VISIBLE: ",".join(itertools.islice(gpus, device.gpus))} for _ in range(jobs)]


def _start(run: Run, share: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that executes a run."""
    set_up(run)
    log = run.folder.path / "launch.log"
    print_line(f"== {run.title}, on {run.device}: started, {log}")
    with open(log, "ab") as output:
        return subprocess.Popen(
            [*python("capsnmt.launch"), "--resume", str(run.folder)],
            env={**os.environ, **environment(run.device), **share},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C in the terminal is passed on above, once
        )
