"""Train and evaluate classifiers: ``python -m capsnmt.experiment.classification_run CONFIGS``.

Each run is a row, a seed and, of probing, a task. Complete runs are skipped and training resumes:
the same command again is the way on.
"""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentTypeError, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

from capsnmt.arguments import OneLineParser, positive
from capsnmt.checkpoints.recovery import recover, updates_done
from capsnmt.errors import ConfigurationError
from capsnmt.experiment import flags, process
from capsnmt.experiment.commands import USER_DIR, Command
from capsnmt.experiment.config import Experiment, load, override
from capsnmt.files import locked, read_json, write_json
from capsnmt.report.classification import classification
from capsnmt.report.page import write_page
from capsnmt.runs.classification import load_classifier_run
from capsnmt.runs.find import find_runs
from capsnmt.runs.stages import StageRecords
from capsnmt.sentences.probing.tasks import TASKS, require_task

CONFIG, RESULTS = "config.json", "results.json"
BASE = "base"  # what the rows of a folder extend
# one thread must not wait for another by spinning, on cores that other work shares
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(USER_DIR.parent)}


@dataclass(frozen=True)
class Run:
    """A row with one seed, on one task; ``task`` is the probing task, if that is what it is."""

    experiment: Experiment
    seed: int
    data: Path
    output: Path
    gpu: bool
    threads: int
    task: Optional[str] = None

    @property
    def folder(self) -> Path:
        """Where everything of this run is."""
        parts = [self.experiment.row, *([self.task] if self.task else []), f"seed-{self.seed}"]
        return self.output.joinpath(*parts)

    @property
    def checkpoints(self) -> Path:
        """Where fairseq saves."""
        return self.folder / "checkpoints"

    @property
    def model(self) -> Path:
        """What is evaluated.

        **D**: the checkpoint with the best validation accuracy.
        """
        return self.checkpoints / "checkpoint_best.pt"

    def train(self) -> Command:
        """fairseq-train with the row's settings."""
        experiment = self.experiment
        probing = ["--probing-task", self.task] if self.task else []
        device = ["--fp16"] if self.gpu and experiment["precision"] == "fp16" else []
        argv = [
            *(sys.executable, "-m", "fairseq_cli.train", str(self.data)),
            *("--user-dir", str(USER_DIR), "--task", experiment["dataset"], *probing),
            *("--arch", experiment["arch"], *flags.argv(experiment["train"])),
            *("--required-batch-size-multiple", "1", "--num-workers", "0"),
            *(device if self.gpu else ["--cpu"]),
            *("--distributed-world-size", "1", "--seed", str(self.seed)),
            *("--save-dir", str(self.checkpoints), "--log-format", "json"),
        ]
        return Command("train", tuple(argv))

    def evaluate(self) -> Command:
        """All measures of the model, on validation and test."""
        argv = [
            *(sys.executable, "-m", "capsnmt.experiment.classification_evaluate", str(self.model)),
            *("--data", str(self.data), "--splits", "valid,test"),
            *("--json", str(self.folder / RESULTS), *([] if self.gpu else ["--cpu"])),
        ]
        return Command("evaluate", tuple(argv))

    def describe(self) -> Dict[str, object]:
        """What the run is, for its folder."""
        return {
            "row": self.experiment.row,
            "seed": self.seed,
            "task": self.task,
            "settings": self.experiment.settings,
            "commands": [self.train().shell(), self.evaluate().shell()],
        }


def execute(run: Run) -> None:
    """Bring a run to its end.

    Raises:
        ConfigurationError: its folder has a run with other settings, or is in use; or a command
            failed.
        Stopped: a signal to stop came; the same call goes on from there.
    """
    busy = f"{run.folder}: another launcher is running here: wait for it or give another --output"
    with locked(run.folder / ".lock", busy) as lock:
        path, description = run.folder / CONFIG, run.describe()
        before = read_json(path)["settings"] if path.exists() else run.experiment.settings
        if before != run.experiment.settings:
            raise ConfigurationError(
                f"{run.folder}: has a run with other settings ({path}): give another --output, or "
                f"delete the folder"
            )
        write_json(path, description)
        stages = StageRecords(run.folder / "stages.json")
        train, last = run.train(), run.checkpoints / "checkpoint_last.pt"
        if not stages.complete(train.stage, train.argv, [], [run.model]):
            warning = recover(run.checkpoints)
            if warning:
                print(f"warning: {warning}", flush=True)
            total = run.experiment["train.max-update"]
            # fairseq would make one update too many when started on a finished training
            if not (total and run.model.exists() and updates_done(run.checkpoints) >= total):
                _run(run, train, lock)
            if not run.model.exists():
                raise ConfigurationError(f"{run.folder}: the training left no {run.model.name}")
            stages.record(train.stage, train.argv, [], [run.model])
            last.unlink()  # complete: nothing is resumed, and the best one is kept
        evaluate = run.evaluate()
        if not stages.complete(evaluate.stage, evaluate.argv, [run.model], [run.folder / RESULTS]):
            _run(run, evaluate, lock)
            stages.record(evaluate.stage, evaluate.argv, [run.model], [run.folder / RESULTS])
    result = read_json(run.folder / RESULTS)
    test = result["splits"]["test"]
    print(
        f"{run.folder}: {result['updates']:,} updates, test accuracy {test['accuracy']:.2f}, "
        f"macro-F1 {test['macro_f1']:.2f}, majority {test['majority']:.2f}",
        flush=True,
    )


def _run(run: Run, command: Command, lock: int) -> None:
    """Run a command; its output goes into a log, and a failure's end is shown."""
    print(f"-- {run.folder}: {command.stage}", flush=True)
    path = run.folder / f"{command.stage}.log"
    tail: List[str] = []
    with open(path, "a", encoding="utf-8") as log:

        def keep(line: str) -> None:
            log.write(line)
            log.flush()
            tail.append(line)
            del tail[:-1]

        environment = {**ENVIRONMENT, "OMP_NUM_THREADS": str(run.threads)}
        status = process.run(command.argv, environment, keep, lock=lock)
    if status:
        raise ConfigurationError(f"{path}: {command.stage} failed: {''.join(tail).strip()}")


def rows_of(folder: Path, wanted: Optional[Sequence[str]]) -> List[Experiment]:
    """The rows of a folder of configurations, in alphabetical order or in that of ``wanted``.

    Raises:
        ConfigurationError: the folder has no such row, or one is malformed.
    """
    found = {path.stem: path for path in sorted(folder.glob("*.yaml")) if path.stem != BASE}
    if not found:
        raise ConfigurationError(f"{folder}: there are no rows: give a folder of .yaml files")
    for name in wanted or ():
        if name not in found:
            raise ConfigurationError(
                f"--rows: there is no {name!r}: choose from {', '.join(found)}"
            )
    experiments = [load(found[name]) for name in wanted or found]
    for experiment in experiments:
        if experiment["dataset"] not in ("probing", "logical_inference") or not experiment["arch"]:
            raise ConfigurationError(
                f"{found[experiment.row]}: dataset and arch are needed; dataset is probing or "
                f"logical_inference"
            )
    return experiments


def plan(options: Namespace) -> Iterator[Run]:
    """All runs, seed by seed, so that a stopped set has whole seeds.

    Raises:
        ConfigurationError: see :func:`rows_of`; or a task is unknown, or a setting wrong.
    """
    experiments = rows_of(options.configs, options.rows)
    for experiment in experiments:
        override(experiment, options.set)
    for seed in options.seeds:
        for experiment in experiments:
            probing = experiment["dataset"] == "probing"
            for task in (options.tasks or list(TASKS)) if probing else [None]:
                if task is not None:
                    require_task(task)
                yield Run(
                    *(experiment, seed, options.data, options.output),
                    *(options.gpu, options.threads, task),
                )


def _names(text: str) -> List[str]:
    return [name.strip() for name in text.split(",")]


def _seeds(text: str) -> List[int]:
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise ArgumentTypeError(f"{text!r}: give whole numbers, as in 1,2,3")
    return [int(part) for part in text.split(",")]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line and return its exit status."""
    parser = OneLineParser(
        prog="python -m capsnmt.experiment.classification_run", description=__doc__
    )
    parser.add_argument("configs", type=Path, help="folder of rows, e.g. configs/probing/li2021")
    parser.add_argument("--data", type=Path, required=True, help="folder with the data")
    parser.add_argument("--output", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--rows", type=_names, help="comma list (default: all of the folder)")
    parser.add_argument("--tasks", type=_names, help="probing: comma list (default: all ten)")
    parser.add_argument("--seeds", type=_seeds, default=[1], help="comma list (default: 1)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. train.lr=0.003"
    )
    parser.add_argument("--gpu", action="store_true", help="train on a GPU (default: on the CPU)")
    parser.add_argument("--threads", type=positive, default=1, help="OMP_NUM_THREADS (default: 1)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    options = parser.parse_args(arguments)
    # A complete run is known by its commands, however its folders were spelled this time.
    options.data, options.output = options.data.resolve(), options.output.resolve()
    runs = list(plan(options))
    for run in runs:
        if options.dry_run:
            print(
                f"# {run.folder}",
                *map(shlex.join, (run.train().argv, run.evaluate().argv)),
                sep="\n",
            )
        else:
            execute(run)
    if not options.dry_run:
        found = [load_classifier_run(folder) for folder in find_runs([options.output]).finished]
        print(write_page([classification(found)], options.output))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except process.Stopped as stopped:
        print(f"{stopped}; the same command goes on from there", file=sys.stderr)
        sys.exit(stopped.status)
