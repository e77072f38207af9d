"""Execute a run as its ``config.json`` says: skip completed steps, and resume training."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, ContextManager, Dict, Iterable, List, Optional, Sequence, TextIO

import msgspec
import torch

from capsnmt import process, records
from capsnmt.checkpoints.load import count_parameters
from capsnmt.checkpoints.resume import STOP_FILE, num_updates, recover
from capsnmt.cli import ConfigurationError, ExecutionError
from capsnmt.files import atomic_writer, installed_version, locked, own_version, sha256
from capsnmt.launch import training
from capsnmt.launch.plan import kind
from capsnmt.launch.progress import TrainingProgress, say
from capsnmt.launch.run import Run, environment, python
from capsnmt.launch.script import script
from capsnmt.machine import processor
from capsnmt.process import Stopped
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import InitialModel, RunConfig, TrainingRecord
from capsnmt.runs.trained_rows import training_differences
from capsnmt.steps import Step, StepRecords, run_step

ENDS = ("max-epoch", "max-update")  # flags that end a training and may change when it resumes


def execute(run: Run) -> None:
    """Execute every step of a run that is not complete.

    Raises:
        ConfigurationError: the folder belongs to other settings or another launcher.
        ExecutionError: a command failed.
        Stopped: a stop signal arrived; the same call resumes.
    """
    with _alone(run) as lock:
        _Execution(run, lock).execute()


def record(run: Run) -> None:
    """Prepare the data of a run and write its ``config.json``, for whoever executes it.

    Raises:
        ConfigurationError, ExecutionError, Stopped: as :func:`execute`.
    """
    with _alone(run) as lock:
        _Execution(run, lock).record()


def _alone(run: Run) -> ContextManager[int]:
    # A killed launcher leaves its training, which holds the lock.
    waiting = (
        f"waiting for another launcher, or for the training of one that was killed, in "
        f"{run.folder}: touch {run.folder.checkpoints / STOP_FILE} to stop it"
    )
    return locked(run.folder.lock, waiting, say)


def execute_side_by_side(runs: Sequence[Run], jobs: int) -> None:
    """Execute runs in processes of their own, several at a time; the output of each in its folder.

    Raises:
        ExecutionError: a run failed; the others are finished first.
        Stopped: a stop signal arrived; all processes have ended.
    """
    waiting = list(runs)
    running: Dict[Path, subprocess.Popen[bytes]] = {}
    titles = {run.folder.path: run.title for run in runs}
    failed: List[Path] = []
    try:
        while waiting or running:
            unfinished = {*running, *(run.folder.path for run in waiting)}
            for run in list(waiting):
                earlier = {folder.path for folder in run.earlier()}
                lost = [titles[path] for path in failed if path in earlier]
                if lost:
                    waiting.remove(run)
                    failed.append(run.folder.path)
                    say(f"== {run.title}: not started, as {lost[0]} failed")
                    continue
                if len(running) == jobs or earlier & unfinished:
                    continue
                waiting.remove(run)
                record(run)
                log = run.folder.path / "launch.log"
                say(f"== {run.title}, on {run.device}: started, {log}")
                command = [*python("capsnmt.launch"), "--resume", str(run.folder)]
                with open(log, "ab") as output:
                    child = subprocess.Popen(
                        command,
                        env={**os.environ, **environment(run.device)},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,  # Ctrl-C in the terminal is passed on below, once
                    )
                running[run.folder.path] = child
            for path in [path for path, child in running.items() if child.poll() is not None]:
                status = running.pop(path).returncode
                failed += [path] if status else []
                ended = f"failed with exit status {status}" if status else "done"
                say(f"== {titles[path]}: {ended}")
            time.sleep(0.1)
    finally:
        for child in running.values():
            child.terminate()
        for child in running.values():
            child.wait()
    if failed:
        names = "; ".join(titles[path] for path in failed)
        raise ExecutionError(f"{names}: failed: see launch.log in the run's folder")


class _Execution:
    def __init__(self, run: Run, lock: int) -> None:
        self.run, self.folder, self.lock = run, run.folder, lock
        self.kind = kind(run)
        places = {"data": run.data.folder, "..": run.output}
        self.steps = StepRecords(self.folder.steps, places)
        self.environment = environment(run.device)
        self.done = 0  # updates of the checkpoint that training resumes from
        self.before: Optional[TrainingRecord] = None  # what was trained here, if it is this run

    def execute(self) -> None:
        say(f"== {self.run.title}, on {self.run.device}: {self.folder}")
        self.record()
        record = self.before or self.describe()
        if self.done and self.done == self.run.total_updates:  # also of fairseq-train alone
            record = msgspec.structs.replace(record, updates=self.done)
        records.write(self.folder.training, record)
        if record.updates is not None:
            say(f"-- train: complete at {self.done:,} updates")
        else:
            self.train()
            record = msgspec.structs.replace(
                record, updates=num_updates(self.folder.last_checkpoint)
            )
            records.write(self.folder.training, record)
        for step in self.kind.evaluation(self.run):
            self.step(step)
        if record.parameters is None:
            counted = count_parameters(self.run.model)
            records.write(self.folder.training, msgspec.structs.replace(record, parameters=counted))
        if not self.run.settings.classifies:
            scored = {name: self.folder.scored(name) for name in self.run.settings.data.test_sets}
            scores = {name: records.load(path) for name, path in scored.items()}
            records.write(self.folder.scores, scores)

    def record(self) -> None:
        """Prepare the data, compare with what was trained here, and write what the run is."""
        step = self.kind.prepare(self.run)
        if step is not None:
            self.step(step)
        self.vocabulary = {path.name: sha256(path) for path in self.kind.check_data(self.run)}
        self.done, recovered = recover(self.folder.checkpoints)
        if recovered:
            say(f"warning: {recovered}")
        if self.done and self.folder.exists:
            self.check_unchanged(self.folder.read_config())
        records.write(self.folder.config, self.run.config)
        with atomic_writer(self.folder.commands) as file:
            file.write(script(self.run))

    def check_unchanged(self, old: RunConfig) -> None:
        """Raise if the checkpoints in the folder are from other settings or a longer training."""
        done, total, config = self.done, self.run.total_updates, self.run.config
        before, now = self.folder.read_training(), self.describe()
        fix = "give another --name or --output, or delete the folder"
        changes = training_differences(old, config, before.vocabulary, now.vocabulary)
        for key, was, new in changes:
            raise ConfigurationError(
                f"{self.folder}: was trained with {key} {was}, not {new}: {fix}"
            )
        used, found = before.initial, now.initial
        if used is not None and found is not None and used.checksum != found.checksum:
            raise ConfigurationError(
                f"{self.folder}: was initialised from {used}, but {found.checkpoint} has changed "
                f"since: {fix}"
            )
        if total is not None and done > total:
            raise ConfigurationError(
                f"{self.folder}: already has {done:,} updates, more than the {total:,} asked for: "
                f"give --max-update {done} or more, or another --output"
            )
        same_end = all(old.train.get(flag) == config.train.get(flag) for flag in ENDS)
        # fairseq makes one update too many when it resumes a finished training
        if done == total or (same_end and before.updates == done):
            self.before = msgspec.structs.replace(before, updates=done)

    def describe(self) -> TrainingRecord:
        """Return what the training is made with."""
        device = self.run.device
        names = {name: installed_version(name) for name in ("ve-fairseq", "fairseq")}
        fairseq = ", ".join(f"{name} {version}" for name, version in names.items() if version)
        return TrainingRecord(
            vocabulary=self.vocabulary,
            device=str(device),
            device_name=torch.cuda.get_device_name(0)
            if device.gpus
            else f"{processor()}, {os.cpu_count()} cores",
            versions={
                "python": platform.python_version(),
                "torch": torch.__version__,
                "fairseq": fairseq or "unknown",
                "capsnmt": own_version(),
            },
            initial=None if self.run.initial is None else self.initial(self.run.initial),
        )

    def initial(self, other: RunFolder) -> InitialModel:
        """Return the record of the model that the run starts from."""
        trained, model = other.read_training(), other.model(other.read_config())
        if trained.vocabulary != self.vocabulary:
            raise ConfigurationError(
                f"{other}: was trained on other data than {self.run.data.folder}, so that "
                f"{self.run.config.row} cannot start from it: give another --output"
            )
        earlier = 0 if trained.initial is None else trained.initial.updates
        return InitialModel(
            row=str(self.run.config.initial),
            checkpoint=str(model),
            checksum=sha256(model),
            updates=num_updates(model) + earlier,
        )

    def train(self) -> None:
        run, folder, step = self.run, self.folder, training.train(self.run)
        done, total = self.done, run.total_updates
        # Scores of fewer updates must not be mistaken for those of the finished training.
        for path in (folder.scores, folder.result):
            path.unlink(missing_ok=True)
        budget = "by epochs" if total is None else f"{total:,} updates"
        resuming = f"resuming at {done:,} of " if total is not None else f"resuming at {done:,}, "
        say(f"-- train: {resuming if done else ''}{budget}")
        say(f"   {training.batch(run)}")
        warning = training.warning(run)
        if warning:
            say(f"warning: {warning}")
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        request = folder.checkpoints / STOP_FILE
        with self.console() as console:
            progress = TrainingProgress(total, console, say)

            def ask() -> bool:
                request.touch()
                return True

            try:
                request.unlink(missing_ok=True)
                status = self.start(step, progress, ask=ask)
            finally:
                request.unlink(missing_ok=True)
        if progress.stopped:  # by a request that only the training received
            raise Stopped(signal.SIGTERM)
        self.check(step, status, progress.tail)
        if not folder.last_checkpoint.exists():
            raise ExecutionError(f"train: no checkpoint in {folder.checkpoints}")

    def step(self, step: Step) -> None:
        """Run a step unless it is complete."""
        run_step(step, self.steps, say, "--", self.generate if step.to_file else self.show)

    def show(self, step: Step) -> None:
        """Run a command whose output is for the user."""
        status = self.start(step, lambda line: print(line, end="", flush=True))
        self.check(step, status, where="the lines above")

    def generate(self, step: Step) -> None:
        """Run fairseq-generate, write its output to a file, and show the progress."""
        done = 0
        with atomic_writer(step.outputs[0]) as output, self.console() as console:

            def keep(line: str) -> None:
                nonlocal done
                output.write(line)
                done += line.startswith("H-")
                if line.startswith("H-") and done % 500 == 0:
                    say(f"  {done:,} sentences")

            self.check(step, self.start(step, keep, errors=console))

    def start(
        self,
        step: Step,
        on_line: Callable[[str], None],
        errors: Optional[TextIO] = None,
        ask: Optional[Callable[[], bool]] = None,
    ) -> int:
        return process.run(step.argv, self.environment, on_line, errors, self.lock, ask)

    def console(self) -> TextIO:
        """The open log of all output that the user is not shown."""
        return open(self.folder.console_log, "a", encoding="utf-8", errors="surrogateescape")

    def check(
        self, step: Step, status: int, tail: Iterable[str] = (), where: Optional[str] = None
    ) -> None:
        """Raise if the command failed.

        Args:
            step: the step.
            status: its exit status.
            tail: the last lines of its output, if the user has not seen them.
            where: where all of its output is; in the console log by default.
        """
        if not status:
            return
        for line in tail:
            print(line, file=sys.stderr)
        ended = f"exit status {status}" if status > 0 else f"signal {-status}"
        raise ExecutionError(
            f"{step.name} failed with {ended}: see {where or self.folder.console_log}; fix the "
            f"cause and run the same command again to resume"
        )
