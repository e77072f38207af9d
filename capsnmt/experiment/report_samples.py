"""Sample translations: the same sentences of a test set as every system translated them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import List, Sequence

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.reading import read_lines
from capsnmt.evaluation.systems import TextSettings, check_count, read_system
from capsnmt.experiment.report_run import ReportedRun

SEED = 1


@dataclass(frozen=True)
class Sample:
    """One sentence: its number in the test set (from 0), its texts, one translation a system."""

    number: int
    source: str
    reference: str
    translations: Sequence[str]


def draw_numbers(sentences: int, samples: int, seed: int = SEED) -> List[int]:
    """Which sentences to show: drawn without replacement, in the order of the test set.

    **D**: the draw depends on the size of the test set alone, never on what was translated, so
    that nobody can choose the sentences.

    >>> draw_numbers(3, 20)
    [0, 1, 2]
    """
    return sorted(random.Random(seed).sample(range(sentences), min(samples, sentences)))


def read_samples(runs: Sequence[ReportedRun], test_set: str, samples: int) -> List[Sample]:
    """The sample translations of all runs on a test set.

    Args:
        runs: they have the same test sets, languages and data.
        test_set: its name.
        samples: how many sentences to show; all where the test set has fewer.

    Raises:
        ConfigurationError: a file is missing or damaged, or its length is not the reference's.
    """
    first = runs[0]
    raw = [str(first.data / "raw" / f"{test_set}.{language}") for language in first.languages]
    source, reference = (read_lines(path) for path in raw)
    check_count(raw[1], len(reference), raw[0], len(source))
    translations = [read_translations(run, test_set) for run in runs]
    for run, lines in zip(runs, translations):
        check_count(raw[1], len(reference), str(run.folder), len(lines))
    return [
        Sample(number, source[number], reference[number], [each[number] for each in translations])
        for number in draw_numbers(len(reference), samples)
    ]


def read_translations(run: ReportedRun, test_set: str) -> List[str]:
    """What a run translated, as the text that was scored.

    Raises:
        ConfigurationError: the output is missing or damaged.
    """
    score = run.config["settings"].get("score") or {}
    settings = TextSettings(
        "generate",
        score.get("remove-bpe", "subword_nmt"),
        score.get("detokenize", "moses"),
        run.languages[1],
    )
    path = run.folder / f"generate-{test_set}.txt"
    if not path.is_file():
        raise ConfigurationError(
            f"{path}: there is no such file: run the launcher's command again, which makes it anew"
        )
    return read_system(f"{run.row}={path}", settings).hypotheses
