"""Runs the stages of one run, each skipped when complete, training resumed."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import ContextManager, Dict, Iterable, Sequence, TextIO

from capsnmt.checkpoints.recovery import LAST, STOP_FILE, recover, updates_done
from capsnmt.errors import ConfigurationError
from capsnmt.experiment import commands, process
from capsnmt.experiment.commands import Command, Run
from capsnmt.experiment.description import describe
from capsnmt.experiment.plan import script
from capsnmt.experiment.process import Stopped
from capsnmt.experiment.progress import TrainingProgress
from capsnmt.files import atomic_writer, locked, read_json, sha256
from capsnmt.runs.comparison import differences
from capsnmt.runs.records import Description
from capsnmt.runs.stages import StageRecords

PREPARING_PATIENCE = 24 * 3600.0


class StageFailed(Exception):  # noqa: N818  a stage fails, the launcher does not
    """A command of a stage ended with an error."""


def execute(run: Run) -> None:
    """Bring a run to its end.

    Raises:
        ConfigurationError: the folder belongs to other settings or another launcher.
        StageFailed: a command failed.
        Stopped: SIGINT or SIGTERM; the same call goes on from there.
    """
    with _alone(run) as lock:
        _Runner(run, lock).execute()


def prepare(run: Run) -> None:
    """Bring only the data of a run to its end, and see that it is what the run needs.

    Raises:
        ConfigurationError, StageFailed, Stopped: as :func:`execute`.
    """
    with _alone(run) as lock:
        runner = _Runner(run, lock)
        runner.prepare()
        runner.check_data()


def _alone(run: Run) -> ContextManager[int]:
    busy = f"{run.folder}: another launcher is running here: wait for it or give another --output"
    return locked(run.folder.lock, busy)


class _Runner:
    def __init__(self, run: Run, lock: int) -> None:
        self.run, self.lock = run, lock
        self.stages = StageRecords(run.folder.stages)
        self.environment = commands.environment(run.device)

    def execute(self) -> None:
        run = self.run
        say(f"== {run.experiment.row}, seed {run.seed}, on {run.device}: {run.folder}")
        self.prepare()
        description = describe(run, self.check_data())
        run.folder.write_description(self.check_unchanged(description))
        with atomic_writer(run.folder.commands) as file:
            file.write(script(run))
        self.train()
        self.average()
        for test_set in run.test_sets:
            self.generate(test_set)
        for test_set in run.test_sets:
            self.score(test_set)
        run.folder.write_scores(run.test_sets)

    def prepare(self) -> None:
        command, data = commands.prepare(self.run), self.run.data
        if command is None:
            return
        lock = data.folder.with_name(data.folder.name + ".lock")
        # Other seeds and rows share the data: whoever comes second finds it made.
        waiting = f"waiting for another launcher that prepares {data.folder}"
        with locked(lock, f"{lock}: still held after a day", PREPARING_PATIENCE, waiting):
            self.stage(command, [], [data.manifest])

    def check_data(self) -> Dict[str, str]:
        """Raise unless the prepared data is what the run needs; the checksums of the vocabulary."""
        run = self.run
        subsets = read_json(run.data.manifest).get("subsets", {})
        for test_set, subset in run.test_sets.items():
            if subsets.get(test_set, subset) != subset:
                raise ConfigurationError(
                    f"data.test-sets.{test_set}: {subset}: {run.data.manifest} calls it "
                    f"{subsets[test_set]}: set that"
                )
            if not run.reference(test_set).is_file():
                raise ConfigurationError(
                    f"data.test-sets.{test_set}: there is no {run.reference(test_set)}: the data "
                    f"has {', '.join(subsets) or 'no test sets'}"
                )
        languages = run.experiment["data.source-lang"], run.experiment["data.target-lang"]
        dictionaries = [run.data.folder / "bin" / f"dict.{language}.txt" for language in languages]
        for dictionary in dictionaries:
            if not dictionary.is_file():
                raise ConfigurationError(f"{dictionary}: is missing: give another --prepared")
        return {dictionary.name: sha256(dictionary) for dictionary in dictionaries}

    def check_unchanged(self, description: Description) -> Description:
        """Raise if the checkpoints in the folder come from other settings or a longer training.

        A finished training keeps the device and versions it had in the description.
        """
        run = self.run
        recovered = recover(run.checkpoints)
        if recovered:
            say(f"warning: {recovered}")
        done, total = updates_done(run.checkpoints), run.experiment["train.max-update"]
        if not done or not run.folder.exists:
            return description
        before = run.folder.read_description()
        for key, old, new in differences(before, description):
            raise ConfigurationError(
                f"{run.folder}: was trained with {key} {old}, not {new}: give another --name or "
                f"--output, or delete the folder"
            )
        if done > total:
            raise ConfigurationError(
                f"{run.folder}: already has {done:,} updates, more than the {total:,} asked for: "
                f"give --max-update {done} or more, or another --output"
            )
        if done < total:
            return description
        return replace(
            description,
            device=before.device,
            device_name=before.device_name,
            threads=before.threads,
            versions=before.versions,
        )

    def train(self) -> None:
        run, command = self.run, commands.train(self.run)
        total, done = run.experiment["train.max-update"], updates_done(run.checkpoints)
        last = run.checkpoints / LAST
        # An early stop leaves fewer updates; then the record tells. fairseq itself would make one
        # update too many when started on a finished training.
        if done == total or self.stages.complete(command.stage, command.argv, [], [last]):
            say(f"-- train: complete at {done:,} updates")
            return
        # Scores of fewer updates would pass for those of this training until it ends.
        run.folder.scores.unlink(missing_ok=True)
        say(f"-- train: {f'resuming at {done:,} of ' if done else ''}{total:,} updates")
        say(f"   {run.batch}")
        if run.left_out:
            say(f"warning: {run.left_out}")
        path, request = run.folder.train_log, run.checkpoints / STOP_FILE
        with open(path, "a", encoding="utf-8") as log, self.console() as console:
            progress = TrainingProgress(total, log, console, say)

            def ask() -> bool:
                if progress.begun:
                    request.touch()
                return progress.begun

            try:
                request.unlink(missing_ok=True)
                status = process.run(
                    command.argv, self.environment, progress, lock=self.lock, ask=ask
                )
            finally:
                request.unlink(missing_ok=True)
        if progress.stopped:  # by a signal that only the training got
            raise Stopped(signal.SIGTERM)
        self.check(command, status, progress.tail)
        if not updates_done(run.checkpoints):
            raise StageFailed(f"train: no checkpoint in {run.checkpoints}")
        self.stages.record(command.stage, command.argv, [], [last])

    def average(self) -> None:
        command = commands.average(self.run)
        if command is not None:
            self.stage(command, [self.run.checkpoints / LAST], [self.run.model])

    def generate(self, test_set: str) -> None:
        run, command = self.run, commands.generate(self.run, test_set)
        inputs, outputs = [run.model, run.data.manifest], [run.generated(test_set)]
        if self.skip(command, inputs, outputs):
            return
        with open(run.reference(test_set), encoding="utf-8") as file:
            total = sum(1 for _ in file)
        done = 0
        with atomic_writer(run.generated(test_set)) as output, self.console() as console:

            def keep(line: str) -> None:
                nonlocal done
                output.write(line)
                if line.startswith("H-"):
                    done += 1
                    if done % max(1, total // 5) == 0:
                        say(f"  {done:,}/{total:,} sentences")

            status = process.run(command.argv, self.environment, keep, console, self.lock)
            self.check(command, status)
        self.stages.record(command.stage, command.argv, inputs, outputs)

    def score(self, test_set: str) -> None:
        run = self.run
        inputs = [run.generated(test_set), run.reference(test_set)]
        if run.baseline:
            inputs.append(run.generated(test_set, run.baseline))
        self.stage(commands.score(run, test_set), inputs, [run.scored(test_set)])

    def stage(self, command: Command, inputs: Sequence[Path], outputs: Sequence[Path]) -> None:
        """Run a command unless it is complete; its output streams through."""
        if self.skip(command, inputs, outputs):
            return

        def show(line: str) -> None:
            print(line, end="", flush=True)

        status = process.run(command.argv, self.environment, show, lock=self.lock)
        self.check(command, status)
        missing = [str(output) for output in outputs if not output.exists()]
        if missing:
            raise StageFailed(f"{command.stage}: ended without writing {', '.join(missing)}")
        self.stages.record(command.stage, command.argv, inputs, outputs)

    def skip(self, command: Command, inputs: Sequence[Path], outputs: Sequence[Path]) -> bool:
        complete = self.stages.complete(command.stage, command.argv, inputs, outputs)
        say(f"-- {command.stage}{': complete' if complete else ''}")
        return complete

    def console(self) -> TextIO:
        """Everything the commands print that is not shown."""
        path = self.run.folder.console_log
        return open(path, "a", encoding="utf-8", errors="surrogateescape")

    def check(self, command: Command, status: int, tail: Iterable[str] = ()) -> None:
        if status:
            for line in tail:
                print(line, file=sys.stderr)
            ended = f"exit status {status}" if status > 0 else f"signal {-status}"
            raise StageFailed(
                f"{command.stage} failed with {ended}: see {self.run.folder.console_log}; the "
                f"same command goes on from there once the cause is gone"
            )


def say(line: str) -> None:
    """Show a line at once, also through a pipe."""
    print(line, flush=True)
