r"""The output of fairseq-generate, in the order of the test set.

For every sentence fairseq-generate prints tab-separated lines that begin with a letter and the
number of the sentence, in the order of decoding (by length), between log lines::

    S-3     the source                      T-3     the binarised reference
    H-3     -0.41   the hypothesis          D-3     -0.41   H after fairseq's own --bpe, --tokenizer
    P-3     scores of the tokens            H-3 ... for each further hypothesis (--nbest)

Example:
    >>> output = parse_generate_output(["S-1\tb", "H-1\t-1.2\tB", "S-0\ta", "H-0\t-0.3\tA"], "x")
    >>> output.hypotheses
    ['A', 'B']
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import Dict, Iterable, List, Optional, Tuple

from capsnmt.cli import ConfigurationError

RECORD = re.compile(r"([STHD])-(\d+)(?:\t|$)")
DICTIONARY = re.compile(r"\| \[([^\]\s]+)\] dictionary: \d+ types")
EXAMPLES = re.compile(r"\| (\S+ \S+ \S+-\S+) (\d+) examples$")
SHOWN = 5  # number of missing sentences that an error names


@dataclass(frozen=True)
class GenerateOutput:
    """A decoded test set, every list in the order of the test set.

    Attributes:
        hypotheses: best hypothesis of each sentence, as decoded (``H-``).
        decoded: hypotheses after fairseq's own ``--bpe`` and ``--tokenizer`` (``D-``); ``None``
            without such lines.
        references: binarised references (``T-``); ``None`` without such lines.
        sources: sources as fairseq read them (``S-``); ``None`` without such lines.
        target_lang: language of the target dictionary; ``None`` without a log that names it.
    """

    hypotheses: List[str]
    decoded: Optional[List[str]]
    references: Optional[List[str]]
    sources: Optional[List[str]]
    target_lang: Optional[str]


def parse_generate_output(lines: Iterable[str], name: str) -> GenerateOutput:
    """Parse what fairseq-generate printed; log lines and score lines are skipped.

    Of several hypotheses of a sentence (``--nbest``) the first, which is the best, is kept.

    Args:
        lines: lines of the file, without line ends.
        name: name of the file for error messages.

    Raises:
        ConfigurationError: there is no ``H-`` line, or a sentence is repeated or missing.
    """
    texts: Dict[str, Dict[int, str]] = {kind: {} for kind in "STHD"}
    log: List[str] = []
    current = None
    for line in lines:
        record = RECORD.match(line)
        if not record:
            log.append(line)
            continue
        kind, number = record[1], int(record[2])
        fields = line.split("\t", 2 if kind in "HD" else 1)
        # an empty hypothesis may have lost the tab before it to a tool that strips lines
        text = fields[-1] if len(fields) == (3 if kind in "HD" else 2) else ""
        # further hypotheses of a sentence follow immediately; anything else is a second decoding
        if number in texts[kind] and (kind in "ST" or number != current):
            raise ConfigurationError(
                f"{name}: sentence {number} is repeated ({kind}-{number}): it holds more than "
                "one decoding; score each separately"
            )
        current = number
        texts[kind].setdefault(number, text)
    if not texts["H"]:
        raise ConfigurationError(
            f"{name} has no H- lines: not an output of fairseq-generate (for plain text, one "
            "sentence per line, give --input plain)"
        )
    target_lang, logged = _read_log(log)
    count = max(logged, *(1 + max(numbers) for numbers in texts.values() if numbers))
    return GenerateOutput(
        _in_order(texts["H"], "H", name, count),
        _in_order(texts["D"], "D", name, count) if texts["D"] else None,
        _in_order(texts["T"], "T", name, count) if texts["T"] else None,
        _in_order(texts["S"], "S", name, count) if texts["S"] else None,
        target_lang,
    )


def _read_log(lines: Iterable[str]) -> Tuple[Optional[str], int]:
    """Return target language and size of the test set; ``None`` and 0 where the log lacks them."""
    target_lang = None
    sizes = {}
    for line in lines:
        dictionary, examples = DICTIONARY.search(line), EXAMPLES.search(line)
        if dictionary:  # the source's is logged first
            target_lang = dictionary[1]
        if examples:  # by name, because shards that were decoded separately repeat the line
            sizes[examples[1]] = int(examples[2])
    return target_lang, sum(sizes.values())


def _in_order(texts: Dict[int, str], kind: str, name: str, count: int) -> List[str]:
    """Return the texts of sentences 0, 1, ..., ``count`` - 1.

    Raises:
        ConfigurationError: a sentence is missing.
    """
    missing = count - len(texts)
    if missing:
        numbers = (number for number in range(count) if number not in texts)
        shown = ", ".join(map(str, islice(numbers, SHOWN))) + (", ..." if missing > SHOWN else "")
        raise ConfigurationError(
            f"{name}: {missing} of the sentences 0..{count - 1} have no {kind}- line "
            f"({shown}): decode the entire test set, with --required-batch-size-multiple 1 "
            "(without it some fairseqs drop the last batch) and without "
            "--skip-invalid-size-inputs-valid-test"
        )
    return [texts[number] for number in range(count)]
