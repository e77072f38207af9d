"""A test set as all systems translated it: sample sentences, salient n-grams."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Iterable, List, Optional, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.prepared import PreparedData
from capsnmt.evaluation.outputs import Output, read_output
from capsnmt.evaluation.references import check_count
from capsnmt.evaluation.salience import SalientNgrams, salient_ngrams, salient_sentences
from capsnmt.evaluation.settings import TextSettings
from capsnmt.evaluation.text_files import read_lines
from capsnmt.evaluation.tokenized import tokens_of
from capsnmt.report.elements import Translations
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.seeds import TrainedRow

SEED = 1


@dataclass(frozen=True)
class Salient:
    """What distinguishes two systems.

    Attributes:
        ngrams: the n-grams that one of them matches more often.
        left: the sentences on which the left system gains most.
        right: the same of the right system.
    """

    ngrams: SalientNgrams
    left: List[Translations]
    right: List[Translations]


@dataclass(frozen=True)
class TranslatedSet:
    """A test set with the translations of some systems.

    Attributes:
        name: name of the test set.
        languages: source and target language.
        source, reference: raw text.
        outputs: outputs of each system, one for each seed.
    """

    name: str
    languages: Sequence[str]
    source: List[str]
    reference: List[str]
    outputs: List[List[Output]]

    def samples(self, count: int) -> List[Translations]:
        """Return the sentences of :func:`draw_numbers`, as the first seeds translated them."""
        systems = range(len(self.outputs))
        return self.translations(draw_numbers(len(self.reference), count), systems)

    def translations(self, numbers: Iterable[int], systems: Iterable[int]) -> List[Translations]:
        """Return some sentences as the first seeds of some systems translated them."""
        firsts = [self.outputs[system][0].hypotheses for system in systems]
        return [
            Translations(
                number,
                self.source[number],
                self.reference[number],
                [hypotheses[number] for hypotheses in firsts],
            )
            for number in numbers
        ]

    def salient(self, left: int, right: int, ngrams: int, sentences: int) -> Optional[Salient]:
        """Find what distinguishes the first seeds of two systems, by compare-mt.

        Args:
            left, right: numbers of the systems.
            ngrams, sentences: number of n-grams and sentences for each side.

        Returns:
            ``None`` if the target language does not separate words by spaces.

        Raises:
            ImportError: compare-mt is not installed.
        """
        pair = [self.outputs[left][0], self.outputs[right][0]]
        tokens = tokens_of(pair, self.reference, self.languages[1], None)
        if tokens is None:
            return None
        one, other = (tokens.lines[each.label] for each in pair)
        better, worse = salient_sentences(tokens.reference, one, other, sentences)
        return Salient(
            salient_ngrams(tokens.reference, one, other, ngrams),
            self.translations(better, [left, right]),
            self.translations(worse, [left, right]),
        )


def draw_numbers(sentences: int, samples: int, seed: int = SEED) -> List[int]:
    """Draw sentences without replacement, and return them in the order of the test set.

    **D**: the draw depends only on the size of the test set, never on the translations, so nobody
    can choose the sentences.

    >>> draw_numbers(3, 20)
    [0, 1, 2]
    """
    return sorted(random.Random(seed).sample(range(sentences), min(samples, sentences)))


def read_translated_set(systems: Sequence[TrainedRow], name: str) -> TranslatedSet:
    """Read a test set and the translations of all systems.

    Args:
        systems: systems with the same test sets, languages and data.
        name: name of the test set.

    Raises:
        ConfigurationError: a file is missing or damaged, or its length is not the reference's.
    """
    first = systems[0].runs[0]
    languages = first.config.languages
    data = PreparedData(first.data)
    raw = [str(data.raw(name, language)) for language in languages]
    source, reference = (read_lines(path) for path in raw)
    check_count(raw[1], len(reference), raw[0], len(source))
    outputs = [[read_translations(run, name) for run in system.runs] for system in systems]
    for seeds in outputs:
        for output in seeds:
            check_count(raw[1], len(reference), output.label, len(output.hypotheses))
    return TranslatedSet(name, languages, source, reference, outputs)


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
