"""What all outputs are compared with: the reference, its language, and the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

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

    names: List[str]  # of the references
    references: List[List[str]]  # of each, the segments as text
    target_lang: Optional[str]
    length_unit: str  # what a source length counts
    source: Optional[List[str]]  # tokens, separated by spaces; None without a common source
    tokens: List[List[str]]  # the tokenised references; empty to tokenise the references


def read_test_set(outputs: Sequence[Output], settings: Settings) -> TestSet:
    """Read the test set, and check that all outputs translate it."""
    languages = sorted({each.target_lang for each in outputs if each.target_lang})
    if len(languages) > 1:
        raise ConfigurationError(
            f"the systems translate into {' and '.join(languages)}; score one language at a time"
        )
    names, references = _read_references(settings.references, "", "give the raw reference")
    references = [[line.rstrip() for line in each] for each in references]
    given, tokens = _read_references(
        settings.tokenized_references, "--tokenized-reference ", "give its tokens without them"
    )
    name, segments = names[0], len(references[0])
    for each, lines in zip(names, references):
        blank = blank_lines(lines, each)
        if blank:
            say(f"warning: {blank} of the {len(lines)} segments of the reference {each} are blank")
    source = None
    texts = [(each.label, each.hypotheses) for each in outputs]
    texts += zip([*names[1:], *given], [*references[1:], *tokens])
    if settings.source is not None:
        source = one_form(read_lines(settings.source), settings.source)
        texts.append((f"--source {settings.source}", source))
    for what, lines in texts:
        check_count(what, lines, name, references[0])
    as_tokens = any(sum(line.endswith(" .") for line in each) >= TOKENISED for each in references)
    for output in outputs:
        empty = sum(not line for line in output.hypotheses)
        if empty:
            say(f"warning: {empty} of the {segments} translations of {output.label} are empty")
        tokens_end = sum(line.endswith(" .") for line in output.hypotheses)
        if tokens_end >= TOKENISED and not as_tokens:
            say(
                f"warning: {tokens_end} of the {segments} translations of {output.label} end "
                f"in ' .': sacreBLEU's scores are of detokenised text"
            )
    return TestSet(
        names,
        references,
        next(iter(languages), None),
        f"the tokens of {settings.source or 'the S- lines'}",
        source or _source_lines(outputs),
        tokens,
    )


def _read_references(
    paths: Sequence[str], flag: str, fix: str
) -> Tuple[List[str], List[List[str]]]:
    """Return the names of references, and the segments of each; ``flag`` is for messages."""
    names, texts = [f"{flag}{path}" for path in paths], []
    for name, path in zip(names, paths):
        texts.append(one_form(read_lines(path), name))
        check_words(texts[-1], name, fix)
    return names, texts


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
