"""A run as a script, and its execution as its ``config.json`` says.

Completed steps are skipped, and training resumes.
"""

import dataclasses
import itertools
import os
import platform
import shlex
import signal
import sys
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Callable, ContextManager, Iterator, List, Mapping, Optional, TextIO, Tuple

import torch
from msgspec.structs import replace

from capsnmt import files, process, records
from capsnmt.checkpoints.load import count_parameters
from capsnmt.checkpoints.resume import STOP_FILE, Resumption, num_updates, recover
from capsnmt.cli import ConfigurationError, ExecutionError, Stopped
from capsnmt.launch import flags, training_step
from capsnmt.launch.kind import kind_of
from capsnmt.launch.progress import TrainingProgress, print_line
from capsnmt.launch.run import Run, environment
from capsnmt.machine import processor
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.records import EarlierMachine, InitialModel, Machine, TrainingRecord
from capsnmt.runs.trained_rows import (
    ENDS,
    file_differences,
    finished_differences,
    training_differences,
)
from capsnmt.steps import Step, StepRecords, run_step

# the settings that make the scores of a trained model
EVALUATION = attrgetter(
    "baseline", *(f"settings.{key}" for key in ("average", "generate", "score", "data.test_sets"))
)
SHOWN = 500  # translations after which the progress of fairseq-generate is shown


def steps(run: Run) -> List[Step]:
    """Return all steps of a run in their order."""
    kind = kind_of(run)
    return [*filter(None, [kind.prepare(run)]), training_step.train(run), *kind.evaluation(run)]


def script(run: Run) -> str:
    """Return the commands of a run as a bash script that does the same without the launcher."""
    lines = ["#!/usr/bin/env bash", *header(run), "set -euo pipefail"]
    lines += exports(environment(run.device))
    for step in steps(run):
        lines += ["", f"# {step.name}", step.shell()]
    return "\n".join(lines) + "\n"


def header(run: Run) -> List[str]:
    """Return the run and the split of its update, as comments."""
    return [f"# {run.title}, {run.device}", f"# {training_step.update(run)}"]


def exports(variables: Mapping[str, str]) -> List[str]:
    """Return variables as lines of a script."""
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def execute(run: Run) -> None:
    """Execute every step of a run that is not complete; after `Stopped` the same call resumes."""
    with _alone(run) as lock:
        _Execution(run, lock).execute()


def set_up(run: Run) -> bool:
    """Prepare the data of a run and write its ``config.json``, for whoever executes it.

    Return whether anything is left to execute.
    """
    with _alone(run) as lock:
        execution = _Execution(run, lock)
        execution.set_up()
        return not (execution.is_trained and execution.is_evaluated and run.folder.is_finished)


def _alone(run: Run) -> ContextManager[int]:
    # A killed launcher leaves its training, which holds the lock.
    stop = shlex.quote(str(run.folder.checkpoints / STOP_FILE))
    waiting = (
        f"waiting for another launcher, or for the training of one that was killed, in "
        f"{run.folder}: touch {stop} to stop it"
    )
    return files.locked(run.folder.lock, waiting, print_line)


class _Execution:
    def __init__(self, run: Run, lock: int) -> None:
        self.run, self.folder, self.lock = run, run.folder, lock
        places = {"data": run.data.folder, "..": run.output}
        places.update({} if run.sources is None else {"sources": run.sources})
        self.steps = StepRecords(self.folder.steps, places)

    def execute(self) -> None:
        print_line(f"== {self.run.title}, on {self.run.device}: {self.folder}")
        self.set_up()
        trained = self.trained or self.describe(self.initial())
        records.write(self.folder.training, trained)
        if trained.updates is None:
            progress = self.train()
            done = progress.updates or num_updates(self.folder.last_checkpoint)
            trained = replace(trained, updates=done, parameters=progress.parameters)
            records.write(self.folder.training, trained)
            for key, was, now in file_differences(self.vocabulary, self.read_data()[0]):
                raise ConfigurationError(
                    f"{self.folder} was trained with {key} {was}, and it was replaced by {now} "
                    f"meanwhile; restore it, and run the same command again"
                )
        else:
            print_line(f"-- train: complete at {trained.updates:,} updates")
        if not self.is_evaluated:  # a test set that fails leaves no scores of another text
            self.check_inputs()
            self.folder.scores.unlink(missing_ok=True)
        for step in self.evaluation():
            self.step(step)
        if trained.parameters is None:
            trained = replace(trained, parameters=count_parameters(self.run.model))
            records.write(self.folder.training, trained)
        if not self.run.settings.classifies:
            names = self.run.settings.data.test_sets
            scores = {name: records.load(self.folder.scored(name)) for name in names}
            records.write(self.folder.scores, scores)

    def set_up(self) -> None:
        """Prepare the data, compare with what was trained here, and write what the run is."""
        if (step := kind_of(self.run).prepare(self.run)) is not None:
            self.step(step)
        self.vocabulary, others = self.read_data()
        before = self.folder.read_training() if self.folder.training.is_file() else None
        known = {} if before is None else before.data
        named = flags.named_files(self.run.settings.train)
        read = {**{path.name: path for path in others}, **named}
        self.data = {x: files.signature(path, known.get(x, "")) for x, path in read.items()}
        finished = (before and before.updates) or 0
        # D: a finished training remains without its last checkpoint, as users delete them to save
        # space, and where that is damaged and no other is left
        kept = self.folder.last_checkpoint.exists() or not finished
        trained_here = self.folder.read_config() if before and self.folder.exists else None
        of_it = {} if trained_here is None else training_step.saved_settings(trained_here)
        found = recover(self.folder.checkpoints, of_it) if kept else Resumption()
        self.done, self.epochs, recovered, self.lack = found
        self.deleted = finished > 0 and not self.done
        self.done = self.done or finished
        if recovered and not self.deleted:
            print_line(f"warning: {recovered}")
        self.trained = self.continued() if self.done else None
        self.is_trained = self.trained is not None and self.trained.updates is not None
        self.check_others()
        self.remove_other_scores()
        if before is not None and before.updates and not self.is_trained:
            # else who goes on, by a config.json with the new end, would take it for reached
            records.write(self.folder.training, replace(before, updates=None))
        records.write(self.folder.config, self.run.config)
        with files.atomic_writer(self.folder.commands) as file:
            file.write(script(self.run))

    def read_data(self) -> Tuple[Mapping[str, str], List[Path]]:
        """Check the data; return checksums of what identifies them, and the other files."""
        identity, others = kind_of(self.run).check_data(self.run)
        return {path.name: files.sha256(path) for path in identity}, others

    @property
    def is_evaluated(self) -> bool:
        return all(map(self.steps.complete, self.evaluation()))

    def evaluation(self) -> List[Step]:
        """Return the steps after the training; that of deleted checkpoints has made its model."""
        return [
            dataclasses.replace(step, known=lambda: True)
            if self.deleted and self.run.model in step.outputs
            else step
            for step in kind_of(self.run).evaluation(self.run)
        ]

    def check_inputs(self) -> None:
        """Raise if what a step reads is gone, and no step makes it: the baseline's translations."""
        left = [step for step in self.evaluation() if not self.steps.complete(step)]
        made = {path for step in left for path in step.outputs}
        for path in (path for step in left for path in step.inputs if path not in made):
            if not path.exists():
                raise ConfigurationError(
                    f"{path}, which the scores are made of, is not there; restore it, or give the "
                    f"launcher's command with another --baseline or without"
                )

    def remove_other_scores(self) -> None:
        """Remove scores of fewer updates or of other settings, until they are those of the run.

        So with an average of fewer updates: without the checkpoints nothing tells it from the new.
        """
        if not self.is_trained:
            self.folder.result.unlink(missing_ok=True)
            if self.run.settings.average:
                self.run.model.unlink(missing_ok=True)
        if not self.is_trained or EVALUATION(self.folder.read_config()) != EVALUATION(
            self.run.config
        ):
            self.folder.scores.unlink(missing_ok=True)

    def continued(self) -> TrainingRecord:
        """Return the record of what was trained here before, with its updates if it is over.

        **D**: the model that the training began from stays in the record, whatever the other run
        has become.
        """
        done, total, config = self.done, self.run.settings.updates, self.run.config
        fix = "give another --name or --output, or delete the folder"
        old = self.folder.read_config()  # before the other record, which an older version lacks
        before = self.folder.read_training()
        now = self.describe(before.initial)
        for key, was, new in training_differences(old, config, before, now):
            raise ConfigurationError(
                f"{self.folder} was trained with {key} {was}, not {new}; {fix}"
            )
        epochs = int(config.settings.train.get("max-epoch") or 0)
        for key, has, most in (("update", done, total), ("epoch", self.epochs, epochs)):
            if most and has > most:
                raise ConfigurationError(
                    f"{self.folder} already has {has:,} {key}s, more than the {most:,} asked for; "
                    f"give --set train.max-{key}={has} or more, or another --output"
                )
        ends = [(old.settings.train.get(end), config.settings.train.get(end)) for end in ENDS]
        same_end = before.updates == done and all(was == new for was, new in ends)
        # fairseq makes one update too many when it resumes a finished training
        over = done == total or same_end
        # of what failed since, config.json may have another average
        made = [x for x in kind_of(self.run).evaluation(self.run) if self.run.model in x.outputs]
        kept = over and self.run.model.is_file()  # and is what was made then
        if self.deleted and not (kept and all(self.steps.complete(x, True) for x in made)):
            raise ConfigurationError(
                f"{self.folder} has no checkpoints of its finished training, and what is asked for "
                f"needs them; restore them, give the settings that its model was made with, or "
                f"delete the folder to train again"
            )
        if not over and self.lack:
            raise ConfigurationError(
                f"{self.folder.last_checkpoint} has {self.lack}, and the training is to go on from "
                f"it; restore it, or delete it to go on from an earlier one"
            )
        if not over:
            return replace(now, earlier=self.earlier(before, now))
        for key, was, new in finished_differences(old.settings, config.settings):
            raise ConfigurationError(
                f"{self.folder} was trained with {key} {was}, not {new}; {fix}"
            )
        return replace(before, updates=done, data=now.data)

    def earlier(self, before: TrainingRecord, now: TrainingRecord) -> Tuple[EarlierMachine, ...]:
        """Return what has trained so far, if that is not what goes on."""
        was, becomes = (
            {name: getattr(record, name) for name in Machine.__struct_fields__}
            for record in (before, now)
        )
        here = () if was == becomes else (EarlierMachine(updates=self.done, **was),)
        return before.earlier + here

    def describe(self, initial: Optional[InitialModel]) -> TrainingRecord:
        device, threads = self.run.device, self.run.device.threads
        if device.workers == 1 and not device.gpus:  # torchrun chooses those of several processes
            threads = threads or torch.get_num_threads()  # as the training has them
        name = f"{processor()}, {os.cpu_count()} cores"
        if device.gpus:  # a login node may have none
            name = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "unknown"
        names = {name: files.installed_version(name) for name in files.FAIRSEQS}
        fairseq = ", ".join(f"{name} {version}" for name, version in names.items() if version)
        malloc = {**os.environ, **environment(device)}.get("LD_PRELOAD")
        return TrainingRecord(
            vocabulary=dict(self.vocabulary),
            data=self.data,
            device=str(device),
            device_name=name,
            threads=threads,
            precision=training_step.trained_precision(self.run),
            versions={
                "python": platform.python_version(),
                "torch": torch.__version__,
                "fairseq": fairseq or "unknown",
                "capsnmt": files.own_version(),
                **({"malloc": malloc} if malloc else {}),
            },
            initial=initial,
        )

    def check_others(self) -> None:
        """Raise if the baseline has another test set, or the initial model other words.

        Warn of one that was replaced since the training began. A job of SLURM may wait for theirs.
        """
        row, initial = self.run.config.baseline, self.run.initial
        if row is not None and self.run.of(row).is_finished:
            baseline = FinishedRun(self.run.of(row).path)
            for test_set in self.run.settings.data.test_sets:
                references = self.run.data.references(test_set, self.run.settings.languages[1])
                baseline.check_references(test_set, references)
        if initial is not None and self.trained is None and initial.training.is_file():
            vocabulary, known = initial.read_training().vocabulary, initial.read_config().settings
            # a joint dictionary is the same in both directions
            pairs = ["-".join(each.languages) for each in (known, self.run.settings)]
            found = [("languages", *pairs)] if pairs[0] != pairs[1] else []
            for key, was, now in [*found, *file_differences(vocabulary, self.vocabulary)]:
                raise ConfigurationError(
                    f"{initial}, the initial model, was trained with {key} {was}, not {now}; "
                    f"launch it on the same data, in another --output"
                )
        begun, model = self.trained and self.trained.initial, self.run.initial_model
        if begun and model and model.is_file() and files.sha256(model) != begun.checksum:
            print_line(
                f"warning: {self.folder} started from another model of {begun.row} than {model} "
                f"is now; delete the folder to start from this one"
            )

    def initial(self) -> Optional[InitialModel]:
        other, model = self.run.initial, self.run.initial_model
        if other is None or model is None:
            return None
        if not (model.is_file() and other.is_finished):
            raise ConfigurationError(
                f"{model}, which init-from starts from, is not there, or not yet trained to its "
                f"end; restore it, or launch {self.run.config.initial} again"
            )
        before = other.read_training().initial
        return InitialModel(
            row=str(self.run.config.initial),
            checkpoint=str(model),
            checksum=files.sha256(model),
            updates=num_updates(model) + (0 if before is None else before.updates),
        )

    def train(self) -> TrainingProgress:
        """Train, or resume it; a stop signal asks it to save and end."""
        done, total = self.done, self.run.settings.updates
        training_step.check_gpus(self.run.device)
        of = "by epochs" if total is None else f"{total:,} updates"
        resuming = f"resuming at {done:,}{',' if total is None else ' of'} " if done else ""
        print_line(f"-- train: {resuming}{of}")
        print_line(f"   {training_step.update(self.run)}")
        request = self.folder.checkpoints / STOP_FILE
        request.parent.mkdir(parents=True, exist_ok=True)
        if not done:  # what is there is of a training that has left nothing else
            self.folder.train_log.unlink(missing_ok=True)
        with self.console() as console:
            progress = TrainingProgress(total, console)
            try:
                request.unlink(missing_ok=True)
                self.start(training_step.train(self.run), progress, ask=request.touch)
            except ExecutionError as error:
                print(*progress.tail, sep="\n", file=sys.stderr)
                cause = f" ({progress.cause})" if progress.cause else ""
                raise ExecutionError(f"{error}{cause}") from None
            finally:
                request.unlink(missing_ok=True)
        if progress.stopped:  # by a request that only the training received
            raise Stopped(signal.SIGTERM)
        return progress

    def step(self, step: Step) -> None:
        run_step(step, self.steps, print_line, "--", self.generate if step.to_file else self.show)

    def show(self, step: Step) -> None:
        """Run a command whose output is for the user."""
        self.start(step, lambda line: print(line, end="", flush=True), where="the lines above")

    def generate(self, step: Step) -> None:
        """Run fairseq-generate, write its output to a file, and show the progress."""
        sentences = itertools.count(1)

        def keep(line: str) -> None:
            output.write(line)
            if line.startswith("H-") and (done := next(sentences)) % SHOWN == 0:
                print_line(f"  {done:,} sentences")

        with files.atomic_writer(step.outputs[0]) as output, self.console() as console:
            self.start(step, keep, errors=console)

    @contextmanager
    def console(self) -> Iterator[TextIO]:
        """The open log of all output that the user is not shown."""
        path = self.folder.console_log
        with files.naming(path), open(path, "a", encoding="utf-8", errors="surrogateescape") as log:
            yield log

    def start(
        self, step: Step, on_line: Callable[[str], None], where: object = "", **more: Any
    ) -> None:
        """Run the command of a step; an error says where its output is, or in the console log."""
        shown = environment(self.run.device)
        status = process.run(step.argv, shown, on_line, lock=self.lock, **more)
        if status:
            ended = f"exit status {status}" if status > 0 else f"signal {-status}"
            if status == -signal.SIGKILL:  # by whom, it does not know
                sentences = self.run.settings.batch.max_sentences
                key = "batch.max-sentences" if sentences else "batch.max-tokens"
                smaller = f": give a smaller {key}" if step.name == "train" else ""
                ended += f" (probably out of memory{smaller})"
            raise ExecutionError(
                f"{step.name} failed with {ended}: see {where or self.folder.console_log}; fix the "
                f"cause and run the same command again to resume"
            )
