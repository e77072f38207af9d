"""Normalisation and tokenisation: a line of text to a line of tokens.

sacremoses and jieba are imported where they are used: the plan of a launch needs neither.
"""

import functools
import logging
import re
import tempfile
import unicodedata
from typing import Any, Callable, Dict

from capsnmt.corpora.parallel import chunk_of, lines_of
from capsnmt.evaluation.text import base_language

# The blocks that sacreBLEU's `zh` tokeniser separates: ideographs, punctuation, wide forms.
CHINESE = re.compile(
    "([\u2e80-\u2fdf\u3000-\u303f\u31c0-\u31ef\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0002fa1f])"
)
BETWEEN_CHINESE = re.compile(rf"(?<={CHINESE.pattern[1:-1]})\s+(?={CHINESE.pattern[1:-1]})")
# Characters that end a line for some of fairseq, Python and Unix tools, and not for others.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\ufeff]")

# Moses' normalisation makes a point or a comma of a no-break space between digits of any script.
BETWEEN_DIGITS = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d)")

LOWERCASE = "lowercase"

# Besides letters and digits, and their marks, what is a part of a word: Armenian's emphasis and its
# exclamation and question marks, the hyphen, geresh and gershayim of Hebrew, the percent sign and
# the separators of Arabic numbers, Indic abbreviation signs, the tsheg of Tibetan, hyphens that are
# not ASCII's.
IN_WORDS = "\u055b\u055c\u055e\u05be\u05f3\u05f4\u066a\u066b\u066c\u0970\u0af0"
IN_WORDS += "\u0f0b\u0f0c\u2010\u2011"

# what joins emoji, and what may follow one as a part of it: a form, a key, a tone of skin, another
# letter of a flag
JOINER = "\u200d"
PARTS = re.compile(f"[{JOINER}\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U0001f1e6-\U0001f1ff]")
# where a colon before a small letter is a part of the word: EU:n, FN:s
WITH_COLONS = ("fi", "sv")

LineFunction = Callable[[str], str]


def _moses_tokeniser(language: str) -> Any:
    """Build Moses' tokeniser.

    **D**: it would take each mark that no composed letter has (Thai, Khmer, Yoruba, ...) and each
    joiner (Persian, Malayalam, ...) for a token, and no detokeniser knows where the spaces were.
    sacremoses lacks Moses' rule for colons inside words of Finnish and Swedish.
    """
    from sacremoses import MosesTokenizer

    tokeniser = MosesTokenizer(language)
    other, _ = tokeniser.PAD_NOT_ISALNUM

    def apart(found: re.Match[str]) -> str:
        mark, line, place = found[0], found.string, found.start()
        inside = mark == ":" and language in WITH_COLONS and line[place - 1 : place].isalnum()
        after = line[place + 1 : place + 2]
        kind = unicodedata.category(mark)
        # marks of a letter, and what joins letters or says where a word may be split
        in_word = mark in IN_WORDS or kind in ("Mn", "Mc", "Me", "Cf")
        if in_word or (inside and after.islower()) or PARTS.match(mark):
            return mark
        if kind != "So":
            return f" {mark} "
        # an emoji of several characters
        return f"{' ' * (line[place - 1 : place] != JOINER)}{mark}{' ' * (not PARTS.match(after))}"

    tokeniser.PAD_NOT_ISALNUM = other, apart
    return tokeniser


def _moses(language: str, normalise: bool = True, escape: bool = False) -> LineFunction:
    from sacremoses import MosesPunctNormalizer

    language = base_language(language)
    normaliser, tokeniser = MosesPunctNormalizer(language), _moses_tokeniser(language)

    def tokenise(line: str) -> str:
        # D: 10 000 stays this number: two words, which the detokeniser does not join
        line = BETWEEN_DIGITS.sub(" ", line)
        # D: one normalisation: fairseq's prepare-iwslt14.sh has it for the test sets.
        line = (normaliser.normalize(line) if normalise else line).replace("\u2019", "'")
        # D: entities (&apos; ...) are escaped only for models of text that was published so:
        # fairseq has no special characters to protect.
        return tokeniser.tokenize(line, return_str=True, escape=escape)

    return tokenise


def _characters(language: str) -> LineFunction:
    # The text between the characters is mostly Latin; sacremoses' rules for Chinese, which expect
    # unsegmented text, take seconds to build. D: Chinese quotes and dashes stay as they are.
    tokeniser = _moses_tokeniser("en")
    return lambda line: tokeniser.tokenize(
        CHINESE.sub(r" \1 ", line), return_str=True, escape=False
    )


def _jieba(language: str) -> LineFunction:
    import jieba

    jieba.setLogLevel(logging.WARNING)
    words = jieba.Tokenizer()
    # jieba would trust any file with its cache's name in the shared temporary folder.
    with tempfile.TemporaryDirectory() as private:
        words.tmp_dir = private
        words.initialize()
    # D: spaces between Chinese characters are dropped: parts of CWMT are segmented by other rules.
    return lambda line: " ".join(" ".join(words.cut(BETWEEN_CHINESE.sub("", line))).split())


MAKERS: Dict[str, Callable[[str], LineFunction]] = {
    "moses": _moses,
    "moses-unnormalised": functools.partial(_moses, normalise=False),
    "moses-escaped": functools.partial(_moses, escape=True),
    "characters": _characters,
    "jieba": _jieba,
    "none": lambda language: lambda line: " ".join(line.split()),
}
TOKENISERS = (*MAKERS, *(f"{name}-{LOWERCASE}" for name in MAKERS))


@functools.cache
def make_tokeniser(name: str, language: str) -> LineFunction:
    """Return the function that maps a raw line to its tokens, separated by single spaces.

    Text is first normalised to Unicode NFC: Vietnamese is published composed and decomposed.

    ``name`` is one of `TOKENISERS`, ``none`` for tokenised text; ``language``, a code of ISO 639,
    selects the rules of ``moses``.
    """
    base, lower, _ = name.partition(f"-{LOWERCASE}")
    tokenise = MAKERS[base](language)

    def tokens(line: str) -> str:
        found = tokenise(CONTROL.sub(" ", unicodedata.normalize("NFC", line)))
        # D: after tokenisation: Moses takes a period before a small letter for an abbreviation.
        return found.lower() if lower else found

    return tokens


def tokenise(tokeniser: str, language: str, chunk: bytes) -> bytes:
    """Normalise and tokenise a chunk of lines."""
    return chunk_of(map(make_tokeniser(tokeniser, language), lines_of(chunk)))


def lowercase(chunk: bytes) -> bytes:
    """Lower-case a chunk of lines."""
    return chunk_of(map(str.lower, lines_of(chunk)))


def sentence_key(sentence: str) -> str:
    """Return a key that ignores case, space and punctuation."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", sentence).casefold())
    return "".join(filter(str.isalnum, folded)) or folded.strip()
