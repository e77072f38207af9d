"""Sample translations, and what compare-mt finds characteristic of each system."""

from __future__ import annotations

from typing import Iterator, Sequence

from capsnmt.evaluation import compare_mt
from capsnmt.report.elements import Aside, Code, Element, Heading, Paragraph, Samples, Table
from capsnmt.report.translated_set import SEED, TranslatedSet

NGRAMS, SENTENCES = 8, 3  # shown for each side


def samples(test_set: TranslatedSet, names: Sequence[str], count: int) -> Iterator[Element]:
    """Yield random sentences of a test set as every system translated them."""
    drawn = test_set.samples(count)
    several = any(len(seeds) > 1 for seeds in test_set.outputs)
    yield Paragraph(
        f"{len(drawn)} sentences drawn at random with the fixed seed {SEED}, not selected by hand. "
        "The number is the position in the test set, from 0."
        + (" Translations are those of the first seed." if several else "")
    )
    yield Samples(test_set.languages, list(names), drawn)
    yield from _salient(test_set, names)


def _salient(test_set: TranslatedSet, names: Sequence[str]) -> Iterator[Element]:
    if len(names) < 2:
        return
    if not compare_mt.is_installed():
        yield Paragraph(
            [
                Aside("No salient differences: "),
                "compare-mt is not installed where this report was made (",
                Code("pip install 'capsnmt[evaluation]'"),
                ").",
            ]
        )
        return
    for number, name in enumerate(names[1:], 1):
        found = test_set.salient(0, number, NGRAMS, SENTENCES)
        if found is None:
            yield Paragraph(
                "No salient differences: the target language does not separate words by spaces."
            )
            return
        pairs = [*found.ngrams.right, *found.ngrams.left]
        yield Heading(f"What {name} gets right more or less often than {names[0]}")
        yield Table(
            f"n-grams of the reference that distinguish {name} from {names[0]}, by compare-mt",
            ["n-gram", f"matched by {names[0]}", f"matched by {name}"],
            [[ngram, str(one), str(two)] for ngram, one, two in pairs],
            numeric=1,
        )
        pair = [names[0], name]
        for better, sentences in ((name, found.right), (names[0], found.left)):
            if sentences:
                yield Paragraph(f"Selected: the sentences on which {better} gains most.")
                yield Samples(test_set.languages, pair, sentences)
    yield Paragraph(
        "By compare-mt: n-grams (n = 1..4) by their matches with the reference, with add-one "
        "smoothing; sentences by sentence BLEU. They were selected because they differ, and prove "
        "nothing."
    )
