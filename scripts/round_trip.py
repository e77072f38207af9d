"""What of a text does not come back from tokenisation and detokenisation, and what that costs.

    python -m scripts.round_trip de=text.de zh=text.zh

Each text has one sentence a line. BLEU is sacreBLEU's, of the restored text against the text.
"""

import difflib
import sys
import unicodedata
from collections import Counter
from typing import Iterator, List, Tuple

from capsnmt.cli import ConfigurationError, OneLineParser, run_command
from capsnmt.corpora.text import make_tokeniser
from capsnmt.evaluation.metrics import build_metrics
from capsnmt.evaluation.outputs import read_lines
from capsnmt.evaluation.text import base_language, moses_detokenizer

SHOWN = 6  # kinds of differences


def restored(language: str, lines: List[str]) -> List[str]:
    """Tokenise lines as text of one's own is, and detokenise them."""
    name = "characters" if base_language(language) == "zh" else "moses"
    tokenise, detokenise = make_tokeniser(name, language), moses_detokenizer(language)
    return [detokenise(tokenise(line)) for line in lines]


def differences(before: str, after: str) -> Iterator[str]:
    """Yield the places where two texts differ, with a character on either side; letters are a."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, start, end, new, last in matcher.get_opcodes():
        if kind != "equal":
            parts = before[max(0, start - 1) : end + 1], after[max(0, new - 1) : last + 1]
            yield " -> ".join(map(_shape, parts))


def _shape(text: str) -> str:
    return "".join("a" if x.isalpha() else "0" if x.isdigit() else x for x in text)


def main() -> None:
    """Print a line for each text."""
    parser = OneLineParser(description=main.__doc__)
    parser.add_argument("texts", nargs="+", metavar="LANG=FILE")
    for given in parser.parse_args().texts:
        language, equals, path = given.partition("=")
        if not (language and equals and path):
            raise ConfigurationError(f"{given} is not LANG=FILE; give such as de=text.de")
        lines = [unicodedata.normalize("NFC", line) for line in read_lines(path)]
        pairs: List[Tuple[str, str]] = list(zip(lines, restored(language, lines)))
        kinds = Counter(kind for pair in pairs for kind in differences(*pair))
        bleu = build_metrics(language, [lines], ["bleu"])["bleu"].corpus_score(
            [new for _, new in pairs], None
        )
        back = sum(old == new for old, new in pairs) / len(pairs)
        common = ", ".join(f"{kind!r} {n:,}" for kind, n in kinds.most_common(SHOWN))
        print(
            f"{given}: {len(lines):,} lines, {back:.1%} come back, BLEU {bleu.score:.2f}: {common}"
        )


if __name__ == "__main__":
    sys.exit(run_command(main))
