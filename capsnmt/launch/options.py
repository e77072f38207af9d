"""What the launcher is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence, Tuple


@dataclass(frozen=True)
class Sweep:
    """A flag of fairseq-train and its values, as they are typed.

    Attributes:
        flag: the flag, without dashes.
        values: its values; only one for a point of a sweep.
    """

    flag: str
    values: Tuple[str, ...]

    @property
    def origin(self) -> str:
        """The launcher's flag that gives it."""
        return "--sweep" if len(self.values) > 1 else "--point"


@dataclass(frozen=True)
class LaunchOptions:
    """The options of a launch; :mod:`capsnmt.launch.arguments` reads them from flags.

    Attributes:
        config: ``DATASET/ROW``, ``ROW`` or a YAML file.
        dataset: the data set of ``config``, ``rows`` and ``arch``.
        rows: several rows of ``dataset``, or ``all``.
        tasks: probing tasks; ``None`` for those of the data.
        arch: the architecture, instead of that of the configuration.
        assignments: texts ``KEY=VALUE`` that override the configuration.
        pair: source and target language.
        sweep: a flag and its values, each a row.
        max_update: the updates of the training.
        name: the name of the row.
        baseline: the row to test the significance against.
        seeds: the seeds, each a run.
        output: the folder of all rows.
        data: the raw data, if the user has it.
        mirrors: addresses to try first.
        prepared: the folder of the prepared data.
        offline: whether the network must not be used.
        gpus: GPUs of each node.
        cpu: processes of each node, without GPUs.
        nodes: machines.
        threads: threads of each process.
        slurm: the partition to submit to; empty for the default, ``None`` to run here.
        dry_run: whether only to print the plan.
        requeue: whether to requeue the batch job when it is preempted or its time is over.
    """

    config: Optional[str] = None
    dataset: Optional[str] = None
    rows: Optional[Sequence[str]] = None
    tasks: Optional[Sequence[str]] = None
    arch: Optional[str] = None
    assignments: Sequence[str] = ()
    pair: Optional[Sequence[str]] = None
    sweep: Optional[Sweep] = None
    max_update: Optional[int] = None
    name: Optional[str] = None
    baseline: Optional[str] = None
    seeds: Sequence[int] = (1,)
    output: Optional[Path] = None
    data: Optional[Path] = None
    mirrors: Sequence[str] = ()
    prepared: Optional[Path] = None
    offline: bool = False
    gpus: Optional[int] = None
    cpu: Optional[int] = None
    nodes: int = 1
    threads: Optional[int] = None
    slurm: Optional[str] = None
    dry_run: bool = False
    requeue: bool = False


def of_data(assignment: str) -> bool:
    """Return whether a text ``KEY=VALUE`` sets what data is read.

    >>> of_data("data.recipe=null"), of_data("train.lr=0.1")
    (True, False)
    """
    return assignment.partition("=")[0].partition(".")[0] == "data"
