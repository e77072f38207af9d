"""A test set as all systems translated it: sample sentences, BLEU by length, salient n-grams."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Iterable, List, Optional, Sequence

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.bleu_statistics import bleu_statistics
from capsnmt.evaluation.lengths import bleu_by_length, bucket_of, counts
from capsnmt.evaluation.outputs import Output, read_output
from capsnmt.evaluation.references import check_count, common_sources
from capsnmt.evaluation.salience import SalientNgrams, salient_ngrams, salient_sentences
from capsnmt.evaluation.seeds import mean_by_length
from capsnmt.evaluation.settings import TextSettings
from capsnmt.evaluation.text_files import read_lines
from capsnmt.evaluation.tokenized import tokens_of
from capsnmt.report.blocks import Translations
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.systems import System

SEED = 1


@dataclass(frozen=True)
class Lengths:
    """BLEU by source length.

    Attributes:
        unit: what the length counts.
        counts: the sentences of each of ``lengths.BUCKETS``.
        bleu: of each system in each bucket, the mean over its seeds.
    """

    unit: str
    counts: List[int]
    bleu: List[List[Optional[float]]]


@dataclass(frozen=True)
class Salient:
    """What tells two systems apart.

    Attributes:
        left, right: the sentences that either system translates better by most.
    """

    ngrams: SalientNgrams
    left: List[Translations]
    right: List[Translations]


@dataclass(frozen=True)
class TestSet:
    """What was translated, and how.

    Attributes:
        languages: of source and target.
        source, reference: raw text.
        outputs: of each system, one for each seed.
    """

    __test__ = False  # pytest would take it for a class of tests

    name: str
    languages: Sequence[str]
    source: List[str]
    reference: List[str]
    outputs: List[List[Output]]

    def samples(self, count: int) -> List[Translations]:
        """Sentences drawn by :func:`draw_numbers`, as the first seed of each system has them."""
        systems = range(len(self.outputs))
        return self.translations(draw_numbers(len(self.reference), count), systems)

    def translations(self, numbers: Iterable[int], systems: Iterable[int]) -> List[Translations]:
        """Some sentences as the first seeds of some systems translated them."""
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

    def by_length(self) -> Lengths:
        """BLEU by the length of the source as the systems read it, or of the raw text."""
        source = common_sources([output for seeds in self.outputs for output in seeds])
        buckets = bucket_of(self.source if source is None else source)

        def bleu(output: Output) -> List[Optional[float]]:
            statistics = bleu_statistics(self.languages[1], output.hypotheses, self.reference)
            return bleu_by_length(statistics, buckets)

        return Lengths(
            "words of the raw text" if source is None else "subwords",
            counts(buckets),
            [mean_by_length([bleu(output) for output in seeds]) for seeds in self.outputs],
        )

    def salient(self, left: int, right: int, ngrams: int, sentences: int) -> Optional[Salient]:
        """What compare-mt finds in two first seeds; ``None`` where no spaces part words.

        Args:
            left, right: which systems.
            ngrams, sentences: how many of each a side.

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
    """Which sentences to show: drawn without replacement, in the order of the test set.

    **D**: the draw depends on the size of the test set alone, never on what was translated, so
    that nobody can choose the sentences.

    >>> draw_numbers(3, 20)
    [0, 1, 2]
    """
    return sorted(random.Random(seed).sample(range(sentences), min(samples, sentences)))


def read_test_set(systems: Sequence[System], name: str) -> TestSet:
    """A test set and the translations of all systems.

    Args:
        systems: they have the same test sets, languages and data.
        name: of the test set.

    Raises:
        ConfigurationError: a file is missing or damaged, or its length is not the reference's.
    """
    first = systems[0].runs[0]
    languages = first.description.languages
    raw = [str(first.data / "raw" / f"{name}.{language}") for language in languages]
    source, reference = (read_lines(path) for path in raw)
    check_count(raw[1], len(reference), raw[0], len(source))
    outputs = [[read_translations(run, name) for run in system.runs] for system in systems]
    for seeds in outputs:
        for output in seeds:
            check_count(raw[1], len(reference), output.label, len(output.hypotheses))
    return TestSet(name, languages, source, reference, outputs)


def read_translations(run: FinishedRun, test_set: str) -> Output:
    """What a run translated, as the text that was scored.

    Raises:
        ConfigurationError: the output is missing or damaged.
    """
    score = run.description.settings.get("score") or {}
    settings = TextSettings(
        "generate",
        score.get("remove-bpe", "subword_nmt"),
        score.get("detokenize", "moses"),
        run.description.languages[1],
    )
    path = run.folder.generated(test_set)
    if not path.is_file():
        raise ConfigurationError(
            f"{path}: there is no such file: run the launcher's command again, which makes it anew"
        )
    return read_output(str(path), str(run.folder), settings)
