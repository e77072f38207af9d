"""Sample translations of a test set."""

from __future__ import annotations

import random
from typing import Iterator, List, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.prepared import PreparedData
from capsnmt.evaluation.outputs import Output, read_output
from capsnmt.evaluation.references import check_count
from capsnmt.evaluation.settings import TextSettings
from capsnmt.evaluation.text_files import read_lines
from capsnmt.report.elements import Element, Paragraph, Samples, Translations
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.seeds import TrainedRow

SEED = 1


def samples(systems: Sequence[TrainedRow], test_set: str, count: int) -> Iterator[Element]:
    """Yield random sentences of a test set as the first seed of every system translated them.

    Raises:
        ConfigurationError: a file is missing or damaged, or its length is not the reference's.
    """
    firsts = [system.runs[0] for system in systems]
    languages, data = firsts[0].config.languages, PreparedData(firsts[0].data)
    raw = [str(data.raw(test_set, language)) for language in languages]
    source, reference = (read_lines(path) for path in raw)
    check_count(raw[1], len(reference), raw[0], len(source))
    outputs = [read_translations(run, test_set) for run in firsts]
    for output in outputs:
        check_count(raw[1], len(reference), output.label, len(output.hypotheses))
    numbers = draw_numbers(len(reference), count)
    yield Paragraph(
        f"{len(numbers)} sentences drawn at random with the fixed seed {SEED}, not selected by "
        "hand. The number is the position in the test set, from 0."
        + (
            " Translations are those of the first seed."
            if any(len(system.runs) > 1 for system in systems)
            else ""
        )
    )
    sentences = [
        Translations(i, source[i], reference[i], [output.hypotheses[i] for output in outputs])
        for i in numbers
    ]
    yield Samples(languages, [system.name for system in systems], sentences)


def draw_numbers(sentences: int, count: int, seed: int = SEED) -> List[int]:
    """Draw sentences without replacement, and return them in the order of the test set.

    **D**: the draw depends only on the size of the test set, never on the translations, so nobody
    can choose the sentences.

    >>> draw_numbers(3, 20)
    [0, 1, 2]
    """
    return sorted(random.Random(seed).sample(range(sentences), min(count, sentences)))


def read_translations(run: FinishedRun, test_set: str) -> Output:
    """Read the translations of a run, as the text that was scored.

    Raises:
        ConfigurationError: the output is missing or damaged.
    """
    score = run.config.settings.get("score") or {}
    settings = TextSettings(
        "generate",
        score.get("remove-bpe", TextSettings.remove_bpe),
        score.get("detokenize", TextSettings.detokenize),
        run.config.languages[1],
    )
    path = run.folder.generated(test_set)
    if not path.is_file():
        raise ConfigurationError(
            f"{path}: there is no such file: run the launcher's command again, which decodes the "
            "test set again"
        )
    return read_output(str(path), str(run.folder), settings)
