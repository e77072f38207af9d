"""The report's details: training, BLEU by source length, translations, salient differences."""

from __future__ import annotations

from typing import Iterator, Mapping, Sequence

from capsnmt.evaluation import compare_mt
from capsnmt.evaluation.lengths import BUCKETS
from capsnmt.report.blocks import (
    Aside,
    Block,
    Code,
    Figure,
    Heading,
    Paragraph,
    Samples,
    Table,
)
from capsnmt.report.results import NONE
from capsnmt.report.test_set import SEED, Lengths, TestSet
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.learning_curve import clock

NGRAMS, SENTENCES = 8, 3  # shown a side
CURVES, LENGTHS = "learning_curve", "bleu_by_length"


def training(runs: Sequence[FinishedRun], names: Sequence[str]) -> Iterator[Block]:
    """What was trained, for how long, and the learning curves."""
    yield Table(
        "What was trained",
        ["system", "architecture", "seed", "parameters", "updates", "time", "valid loss"],
        [
            [
                name,
                Code(run.description.architecture),
                str(run.seed),
                f"{run.parameters:,}",
                f"{run.curve.updates:,}",
                NONE if run.curve.training_seconds is None else clock(run.curve.training_seconds),
                _last(run.curve.valid),
            ]
            for run, name in zip(runs, names)
        ],
        numeric=2,
    )
    yield Paragraph(
        "Time is wall-clock time (h:mm:ss) of the updates the model has, validation and saving "
        "included. Loss is label-smoothed, in bits per subword; the last one is shown."
    )
    last = "; ".join(f"{name} {_last(run.curve.valid)}" for run, name in zip(runs, names))
    yield Figure(
        CURVES,
        f"Training and validation loss over updates. Last validation loss: {last}.",
        "Loss over updates: validation solid, training dotted; a line for each seed. The axis ends "
        "where the curves begin to differ.",
    )
    for run, name in zip(runs, names):
        if not run.curve.valid:
            yield Paragraph(f"{name} was never validated: its curve is that of the training alone.")
        if run.curve.unreadable:
            yield Paragraph(
                [
                    f"{name}: {run.curve.unreadable} unreadable line(s) of ",
                    Code("train.log"),
                    " were left out; a training that was killed leaves such.",
                ]
            )


def _last(points: Mapping[int, float]) -> str:
    return f"{points[max(points)]:.3f}" if points else NONE


def lengths(test_set: str, names: Sequence[str], found: Lengths) -> Iterator[Block]:
    """BLEU by source length: the figure of the papers, and its numbers."""
    shown = [number for number, count in enumerate(found.counts) if count]
    yield Heading(test_set)
    yield Figure(
        f"{LENGTHS}-{test_set}",
        f"BLEU by source length on {test_set}, a line for each system; the table below has the "
        "numbers.",
        f"BLEU by length of the source sentence, in {found.unit} (10-20 is 10 to 19). Few "
        "sentences give an unsure score.",
    )
    yield Table(
        f"BLEU by source length on {test_set}",
        ["system", *(BUCKETS[number] for number in shown)],
        [
            ["sentences", *(f"{found.counts[number]:,}" for number in shown)],
            *(
                [name, *(NONE if row[number] is None else f"{row[number]:.2f}" for number in shown)]
                for name, row in zip(names, found.bleu)
            ),
        ],
        numeric=1,
    )


def translations(test_set: TestSet, names: Sequence[str], count: int) -> Iterator[Block]:
    """Sample translations, and what compare-mt finds characteristic of each system."""
    drawn = test_set.samples(count)
    several = any(len(seeds) > 1 for seeds in test_set.outputs)
    yield Paragraph(
        f"Not chosen: {len(drawn)} sentences drawn at random with the fixed seed {SEED}, by their "
        f"number in the test set (from 0){', as the first seed has them' if several else ''}."
    )
    yield Samples(test_set.languages, list(names), drawn)
    yield from _salient(test_set, names)


def _salient(test_set: TestSet, names: Sequence[str]) -> Iterator[Block]:
    if len(names) < 2:
        return
    if not compare_mt.is_installed():
        yield Paragraph(
            [
                Aside("Without salient differences: "),
                "compare-mt is not installed where this report was made (",
                Code("pip install 'capsnmt[evaluation]'"),
                ").",
            ]
        )
        return
    for number, name in enumerate(names[1:], 1):
        found = test_set.salient(0, number, NGRAMS, SENTENCES)
        if found is None:
            yield Paragraph("Without salient differences: no spaces part the words.")
            return
        pairs = [*found.ngrams.right, *found.ngrams.left]
        yield Heading(f"What {name} gets right more or less often than {names[0]}")
        yield Table(
            f"n-grams of the reference that tell {name} from {names[0]} most, by compare-mt",
            ["n-gram", f"matched by {names[0]}", f"matched by {name}"],
            [[ngram, str(one), str(two)] for ngram, one, two in pairs],
            numeric=1,
        )
        pair = [names[0], name]
        for better, sentences in ((name, found.right), (names[0], found.left)):
            if sentences:
                yield Paragraph(f"Chosen: the sentences that {better} gains most on.")
                yield Samples(test_set.languages, pair, sentences)
    yield Paragraph(
        "By compare-mt: n-grams (n = 1..4) by their matches with the reference, add-one smoothed; "
        "sentences by sentence BLEU. They are chosen for being different, and prove nothing."
    )
