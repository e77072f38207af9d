"""The trainings: systems, budgets, times and learning curves."""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Sequence

from capsnmt.report.cells import NONE
from capsnmt.report.elements import Code, Element, Figure, Paragraph, Strong, Table
from capsnmt.runs.learning_curve import clock
from capsnmt.runs.translation import FinishedTranslation

CURVES = "learning_curve"


def training(runs: Sequence[FinishedTranslation], names: Sequence[str]) -> Iterator[Element]:
    """Yield what was trained, for how long, and the learning curves."""
    yield Table(
        "Trained systems",
        ["system", "architecture", "seed", "parameters", "updates", "time", "memory", "valid loss"],
        [
            [
                name,
                Code(run.description.architecture),
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
        if run.lacks_updates:
            yield Paragraph(
                [
                    Strong("Fewer updates than configured:"),
                    f" {name}: ",
                    Code(run.folder.train_log.name),
                    f" ends at update {_updates(run)}: the log is incomplete, or the training "
                    "ended early.",
                ]
            )
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


def _updates(run: FinishedTranslation) -> str:
    """Return the updates in the log, and those that the configuration asks for."""
    configured = run.configured_updates
    return f"{run.curve.updates:,}" + (f" of {configured:,}" if configured else "")


def _gib(peak: Optional[float]) -> str:
    return NONE if peak is None else f"{peak:.2f}"


def _last(points: Mapping[int, float]) -> str:
    return f"{points[max(points)]:.3f}" if points else NONE
