"""The trainings: systems, budgets, times and learning curves."""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Sequence

from capsnmt.report.cells import NONE
from capsnmt.report.elements import Code, Element, Figure, Paragraph, Table
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.learning_curve import clock

CURVES = "learning_curve"


def training(runs: Sequence[FinishedRun], names: Sequence[str]) -> Iterator[Element]:
    """Yield what was trained, for how long, and the learning curves."""
    yield Table(
        "Trained systems",
        ["system", "architecture", "seed", "parameters", "updates", "time", "memory", "valid loss"],
        [
            [
                name,
                Code(run.config.architecture),
                str(run.seed),
                f"{run.parameters:,}",
                _updates(run),
                NONE if run.curve.training_seconds is None else clock(run.curve.training_seconds),
                _gib(run.curve.peak_memory),
                _last(run.curve.valid),
            ]
            for run, name in zip(runs, names)
        ],
        numeric=2,
    )
    yield Paragraph(
        "Time is the wall-clock time (h:mm:ss) of the updates in the final model, including "
        "validation and saving. Memory is the peak of the training process in GiB; on a GPU, of "
        "its tensors. The loss is the last validation loss: label-smoothed, in bits per subword."
    )
    last = "; ".join(f"{name} {_last(run.curve.valid)}" for run, name in zip(runs, names))
    yield Figure(
        CURVES,
        f"Training and validation loss over updates. Last validation loss: {last}.",
        "Loss over updates: validation solid, training dotted; one line for each seed. The axis "
        "ends where the curves begin to differ.",
    )
    for run, name in zip(runs, names):
        if not run.curve.valid:
            yield Paragraph(f"{name} was never validated: its curve shows the training loss only.")
        if run.curve.unreadable:
            yield Paragraph(
                [
                    f"{name}: {run.curve.unreadable} unreadable line(s) of ",
                    Code(run.folder.train_log.name),
                    " were skipped; a killed training leaves such lines.",
                ]
            )


def _updates(run: FinishedRun) -> str:
    """Return the updates in the log, and those that the configuration asks for."""
    configured = run.config.train.get("max-update")
    return f"{run.curve.updates:,}" + (f" of {configured:,}" if configured else "")


def _gib(peak: Optional[float]) -> str:
    return NONE if peak is None else f"{peak:.2f}"


def _last(points: Mapping[int, float]) -> str:
    return f"{points[max(points)]:.3f}" if points else NONE
