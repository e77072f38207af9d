"""Run the stages of one run: skip completed ones, and resume training."""

from __future__ import annotations

import math
import signal
import sys
from dataclasses import replace
from typing import Callable, ContextManager, Dict, Iterable, Optional, Sequence, TextIO

from capsnmt import process
from capsnmt.checkpoints.resume import STOP_FILE, recover
from capsnmt.cli import ConfigurationError, ExecutionError
from capsnmt.files import atomic_writer, locked, named_errors
from capsnmt.launch.description import describe
from capsnmt.launch.plan import script
from capsnmt.launch.progress import TrainingProgress, say
from capsnmt.launch.run import Run, environment
from capsnmt.launch.stage import Stage
from capsnmt.process import Stopped
from capsnmt.runs.comparison import differences
from capsnmt.runs.records import Description
from capsnmt.runs.stages import StageRecords

PREPARING_PATIENCE = 24 * 3600.0
ENDS = ("max-epoch", "max-update")  # flags that end a training and may change when it resumes


class StageFailed(ExecutionError):  # noqa: N818
    """A command of a stage ended with an error."""


def execute(run: Run, argv: Sequence[str]) -> None:
    """Execute a run of the launch with the arguments ``argv``: every stage that is not complete.

    Raises:
        ConfigurationError: the folder belongs to other settings or another launcher.
        StageFailed: a command failed.
        Stopped: a stop signal arrived; the same call resumes.
    """
    with _alone(run) as lock:
        _Execution(run, lock).execute(argv)


def prepare(run: Run) -> None:
    """Prepare only the data of a run, and check it.

    Raises:
        ConfigurationError, StageFailed, Stopped: as :func:`execute`.
    """
    with _alone(run) as lock:
        execution = _Execution(run, lock)
        execution.prepare()
        run.check_data()


def _alone(run: Run) -> ContextManager[int]:
    busy = f"{run.folder}: another launcher is running here: wait for it or give another --output"
    if run.file is None:
        return locked(run.folder.lock, busy)
    # Another launcher may need the same run to start from.
    waiting = f"waiting for another launcher that trains {run.title}: {run.folder}"
    return locked(run.folder.lock, busy, math.inf, waiting)


class _Execution:
    def __init__(self, run: Run, lock: int) -> None:
        self.run, self.folder, self.lock = run, run.folder, lock
        folders = (run.output, run.data_folder)
        self.checksums = self.folder.checksums()
        self.records = StageRecords(self.folder.stages, folders, self.checksums)
        self.shared_records = StageRecords(run.data.stages, folders)
        self.environment: Dict[str, str] = environment(run.device)
        self.done = 0  # updates of the checkpoint that training resumes from

    def execute(self, argv: Sequence[str]) -> None:
        run = self.run
        say(f"== {run.title}, on {run.device}: {self.folder}")
        self.prepare()
        vocabulary = {path.name: self.checksums.of(path) for path in run.check_data()}
        description = describe(run, argv, vocabulary, self.checksums)
        self.checksums.save()
        self.folder.write_description(self.check_unchanged(description))
        with atomic_writer(self.folder.commands) as file:
            file.write(script(run))
        self.train()
        for stage in run.evaluation():
            self.stage(stage, self.records)
        run.finish()

    def prepare(self) -> None:
        stage, data = self.run.prepare(), self.run.data
        if stage is None:
            return
        # Other seeds and rows share the data and the record of its preparation.
        waiting = f"waiting for another launcher that prepares {data.folder}"
        with locked(data.lock, f"{data.lock}: still held after a day", PREPARING_PATIENCE, waiting):
            self.shared_records.reload()
            self.stage(stage, self.shared_records)

    def check_unchanged(self, description: Description) -> Description:
        """Raise if the checkpoints in the folder are from other settings or a longer training.

        Returns:
            The description to record; that of a finished training keeps its device and versions.
        """
        self.done, recovered = recover(self.folder.checkpoints)
        if recovered:
            say(f"warning: {recovered}")
        done, total = self.done, self.run.total_updates
        if not done or not self.folder.exists:
            return description
        before = self.folder.read_description()
        for key, old, new in differences(before, description):
            raise ConfigurationError(
                f"{self.folder}: was trained with {key} {old}, not {new}: give another --name or "
                f"--output, or delete the folder"
            )
        used, now = before.initial, description.initial
        if used is not None and now is not None and used.checksum != now.checksum:
            raise ConfigurationError(
                f"{self.folder}: was initialised from {used}, but {now.checkpoint} has changed "
                f"since: give another --name or --output, or delete the folder"
            )
        if total is not None and done > total:
            raise ConfigurationError(
                f"{self.folder}: already has {done:,} updates, more than the {total:,} asked for: "
                f"give --max-update {done} or more, or another --output"
            )
        if any(before.train.get(flag) != description.train.get(flag) for flag in ENDS):
            self.records.forget(self.run.train())
        if not self.is_trained():
            return description
        return replace(
            description,
            device=before.device,
            device_name=before.device_name,
            threads=before.threads,
            versions=before.versions,
            parameters=before.parameters,
        )

    def is_trained(self) -> bool:
        """Whether the training is complete.

        The record shows it for a training that ends early or by epochs, whatever the command is
        today: other settings were refused. The number of updates counts as well: fairseq makes one
        update too many when it resumes a finished training.
        """
        if self.done and self.done == self.run.total_updates:
            return self.run.model.parent != self.folder.checkpoints or self.run.model.exists()
        return bool(self.done) and self.records.made(self.run.train())

    def train(self) -> None:
        run, folder, stage = self.run, self.folder, self.run.train()
        done, total = self.done, run.total_updates
        if self.is_trained():
            say(f"-- train: complete at {done:,} updates")
            return
        # Scores of fewer updates must not be mistaken for those of the finished training.
        for path in (folder.scores, folder.result):
            path.unlink(missing_ok=True)
        budget = "by epochs" if total is None else f"{total:,} updates"
        resuming = f"resuming at {done:,} of " if total is not None else f"resuming at {done:,}, "
        say(f"-- train: {resuming if done else ''}{budget}")
        say(f"   {run.batch}")
        if run.warning:
            say(f"warning: {run.warning}")
        request = folder.checkpoints / STOP_FILE
        with (
            named_errors(folder.path),
            open(folder.train_log, "a", encoding="utf-8") as log,
            self.console() as console,
        ):
            progress = TrainingProgress(total, log, console, say)

            def ask() -> bool:
                if progress.begun:
                    request.touch()
                return progress.begun

            try:
                request.unlink(missing_ok=True)
                status = self.start(stage, progress, ask=ask)
            finally:
                request.unlink(missing_ok=True)
        if progress.stopped:  # by a signal that only the training received
            raise Stopped(signal.SIGTERM)
        self.check(stage, status, progress.tail)
        if not folder.last_checkpoint.exists():
            raise StageFailed(f"train: no checkpoint in {folder.checkpoints}")
        self.records.record(stage)

    def stage(self, stage: Stage, records: StageRecords) -> None:
        """Run a stage unless it is complete."""
        complete = records.complete(stage)
        say(f"-- {stage.name}{': complete' if complete else ''}")
        if complete:
            return
        if stage.stdout is None:
            status = self.start(stage, lambda line: print(line, end="", flush=True))
            self.check(stage, status, where="the lines above")
        else:
            self.generate(stage)
        missing = [str(output) for output in stage.outputs if not output.exists()]
        if missing:
            raise StageFailed(f"{stage.name}: ended without writing {', '.join(missing)}")
        records.record(stage)

    def generate(self, stage: Stage) -> None:
        """Run fairseq-generate, write its output to a file, and show the progress."""
        assert stage.stdout is not None
        assert stage.lines is not None
        with open(stage.lines, encoding="utf-8") as file:
            total = sum(1 for _ in file)
        done = 0
        with atomic_writer(stage.stdout) as output, self.console() as console:

            def keep(line: str) -> None:
                nonlocal done
                output.write(line)
                if line.startswith("H-"):
                    done += 1
                    if done % max(1, total // 5) == 0:
                        say(f"  {done:,}/{total:,} sentences")

            self.check(stage, self.start(stage, keep, errors=console))

    def start(
        self,
        stage: Stage,
        on_line: Callable[[str], None],
        errors: Optional[TextIO] = None,
        ask: Optional[Callable[[], bool]] = None,
    ) -> int:
        return process.run(stage.argv, self.environment, on_line, errors, self.lock, ask)

    def console(self) -> TextIO:
        """The open log of all output that the user is not shown."""
        path = self.folder.console_log
        return open(path, "a", encoding="utf-8", errors="surrogateescape")

    def check(
        self, stage: Stage, status: int, tail: Iterable[str] = (), where: Optional[str] = None
    ) -> None:
        """Raise if the command failed.

        Args:
            stage: the stage.
            status: its exit status.
            tail: the last lines of its output, if the user has not seen them.
            where: where all of its output is; in the console log by default.
        """
        if not status:
            return
        for line in tail:
            print(line, file=sys.stderr)
        ended = f"exit status {status}" if status > 0 else f"signal {-status}"
        raise StageFailed(
            f"{stage.name} failed with {ended}: see {where or self.folder.console_log}; fix the "
            f"cause and run the same command again to resume"
        )
