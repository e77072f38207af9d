"""What all outputs are compared with: the reference, its language, and the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence

from capsnmt.cli import ConfigurationError, say
from capsnmt.evaluation.outputs import Output, read_lines
from capsnmt.evaluation.settings import Settings
from capsnmt.forms import check_words, one_form
from capsnmt.lines import blank_lines

TOKENISED = 100  # as many sentences that end in " ." are tokens: sacreBLEU's own limit


@dataclass(frozen=True)
class TestSet:
    """A test set, whose sentences all outputs translate."""

    __test__ = False  # no class of tests, whatever pytest reads in its name

    reference: List[str]  # the segments as text
    target_lang: Optional[str]
    length_unit: str  # what a source length counts
    source: Optional[List[str]]  # tokens, separated by spaces; None without a common source
    tokens: Optional[List[str]]  # the tokenised reference; None to tokenise the reference


def read_test_set(outputs: Sequence[Output], settings: Settings) -> TestSet:
    """Read the test set, and check that all outputs translate it."""
    languages = sorted({each.target_lang for each in outputs if each.target_lang})
    if len(languages) > 1:
        raise ConfigurationError(
            f"the systems translate into {' and '.join(languages)}; score one language at a time"
        )
    name = settings.reference
    reference = [line.rstrip() for line in one_form(read_lines(name), name)]
    blank = blank_lines(reference, name)
    if blank:
        say(f"warning: {blank} of the {len(reference)} segments of the reference {name} are blank")
    check_words(reference, f"the reference {name}", "give the raw reference")
    tokens = source = None
    texts = [(each.label, each.hypotheses) for each in outputs]
    if settings.tokenized_reference is not None:
        tokens = one_form(read_lines(settings.tokenized_reference), settings.tokenized_reference)
        texts.append((f"--tokenized-reference {settings.tokenized_reference}", tokens))
        check_words(tokens, texts[-1][0], "give its tokens without them")
    if settings.source is not None:
        source = one_form(read_lines(settings.source), settings.source)
        texts.append((f"--source {settings.source}", source))
    for what, segments in texts:
        check_count(what, segments, name, reference)
    as_tokens = sum(line.endswith(" .") for line in reference) >= TOKENISED
    for output in outputs:
        empty = sum(not line for line in output.hypotheses)
        if empty:
            say(
                f"warning: {empty} of the {len(reference)} translations of {output.label} are empty"
            )
        tokens_end = sum(line.endswith(" .") for line in output.hypotheses)
        if tokens_end >= TOKENISED and not as_tokens:
            say(
                f"warning: {tokens_end} of the {len(reference)} translations of {output.label} end "
                f"in ' .': sacreBLEU's scores are of detokenised text"
            )
    return TestSet(
        reference,
        next(iter(languages), None),
        f"the tokens of {settings.source or 'the S- lines'}",
        source or _source_lines(outputs),
        tokens,
    )


def check_count(
    name: str, segments: Sequence[str], reference: str, expected: Sequence[str]
) -> None:
    """Raise unless a text has as many segments as the reference, whose name is ``reference``."""
    if len(segments) != len(expected):
        raise ConfigurationError(
            f"{name} has {len(segments)} segments, but the reference {reference} has "
            f"{len(expected)}; give the same test set"
        )


def _source_lines(outputs: Sequence[Output]) -> Optional[List[str]]:
    """Return the ``S-`` lines of all outputs; ``None`` if they differ or there are none.

    **D**: systems with different BPE have different lengths of a sentence, and so no common
    buckets. This is a warning, not an error.
    """
    source = outputs[0].sources
    if all(each.sources == source for each in outputs):
        return None if source is None else one_form(source, f"the S- lines of {outputs[0].label}")
    say("warning: the systems' S- lines differ (another BPE?): BLEU by length needs --source FILE")
    return None
