"""From tokens back to text: BPE removal and detokenisation."""

import argparse
import re
from dataclasses import dataclass
from typing import Callable, Optional

from capsnmt.forms import ENDS

REMOVE_BPE = ("none", "subword_nmt", "sentencepiece")
DETOKENIZE = ("none", "moses")
LANGUAGE = re.compile(r"[a-zA-Z]{2,3}([-_][a-zA-Z0-9]+)*")
# languages that corpora and their tools name by more than one code
SAME_LANGUAGE = {"cmn": "zh", "yue": "zh", "cn": "zh", "jp": "ja", "iw": "he", "cz": "cs"}
# ISO 639-3, its older forms, and ISO 639-1, of those that have rules here or in Moses
CODES = (
    "afr af, ara ar, arb ar, arm hy, asm as, aze az, azj az, baq eu, bel be, ben bn, bre br, "
    "cat ca, ces cs, chi zh, cze cs, deu de, dut nl, ekk et, ell el, eng en, est et, eus eu, "
    "fas fa, fin fi, fra fr, fre fr, ger de, gle ga, gre el, guj gu, heb he, hin hi, hun hu, "
    "hye hy, ice is, isl is, ita it, jpn ja, kan kn, kor ko, lav lv, lit lt, lvs lv, mal ml, "
    "mar mr, mlt mt, nld nl, nno nn, nob nb, nor no, oci oc, ori or, ory or, pan pa, per fa, "
    "pes fa, pol pl, por pt, ron ro, rum ro, rus ru, slk sk, slo sk, slv sl, spa es, swe sv, "
    "tam ta, tel te, tur tr, ukr uk, uzb uz, uzn uz, vie vi, zho zh"
)
SAME_LANGUAGE.update(re.findall(r"(\w{3}) (\w\w)", CODES))
WITHOUT_SPACES = ("zh", "ja")
# dash, quotes, ellipsis; CJK punctuation, kana, ideographs, full-width and half-width forms
CJK = "\u2014\u2018-\u201d\u2026"
CJK += "\u2e80-\u303f\u3040-\u30ff\u3100-\u33ff\u3400-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
CJK += "\U00020000-\U0003ffff"
# also within 54,000, which jieba splits
NO_SPACE = re.compile(rf"(?<=[{CJK}]) +| +(?=[{CJK}])|(?<=\d,) +(?=\d{{3}}\b)")
BETWEEN_CJK = re.compile(rf"(?<=[{CJK}]) +(?=[{CJK}])")

# languages with apostrophes that Moses knows, and those where one between letters is part of a word
WITH_APOSTROPHES = ("en", "fr", "it")
OF_WORDS = ("az", "be", "br", "ca", "he", "oc", "tr", "uk", "uz")
INSIDE_WORDS = re.compile(r"(?<=[^\W_]) ' (?=[^\W\d_])")  # tr 1990'lar
AT_SHORT_WORDS = re.compile(
    r"(?:(?<=\b[^\W\d_])|(?<=\b[^\W\d_]{2})) ' (?=[^\W\d_])"
    r"|(?<=[^\W_]) ' (?=[^\W\d_]{1,2}\b)"
)
# where single quotes beside such words are more frequent than in others, nl is 'goed' zo: joined is
# d'Artagnan, geht's, 90'er, VVD'er, zzp'er
WITH_QUOTES = ("af", "de", "es", "nb", "nl", "nn", "no", "pt", "sv", "vi")
NO_QUOTES = re.compile(
    r"(?<=\b(?i:[b-df-hj-np-tv-xz])) ' (?=[^\W\d_])|(?<=\bO) ' (?=[A-Z])"
    r"|(?<=[^\W_]) ' (?=(?i:[b-df-hj-np-tv-z]|ll|re|ve)\b)"
    r"|(?<=[A-Z\d]) ' (?=e[rn]\b)|(?<=\b[^\W\d_]{3}) ' (?=er\b)"
)
# it dell'80%, where Moses joins an apostrophe to letters alone
ELIDING = ("ca", "fr", "it", "oc")
ELIDED = re.compile(r"(?i:(?<=\b[^\W\d_])|(?<=[aeou]ll)|(?<=qu)) ' (?=\d)")
# where an apostrophe begins a word (af 'n, nl 's avonds, en '60s) or ends one (it po', mt ta'), and
# what else is inside a word (ca l·l, he with ", zh McDonald's), begins it (tr %50) or ends it (el)
OF_TIMES = "avonds|middags|morgens|nachts|ochtends|zomers|winters|lands|werelds"
APART = "\ufdd0"  # an apostrophe that Moses would join to the next word
PLACES = {
    "af": (r"(?<!\S)' (?=n\b)", "'"),
    "ca": ("l · l", "l·l"),
    "el": (r" ·(?= |$)", "·"),
    "en": (r"(?<!\S)' (?=\d0s\b)", "'"),
    "eu": (r"(?<!\S)% (?=\d)", "%"),
    "he": ('(?<=[א-ת]) " (?=[א-ת](?: |$))', '"'),
    "it": (r"(?<=\b[PpMmBb][oe]) '(?= |$)", APART),
    "mt": (r"(?<=[^\W\d_]{2}) '(?= |$)", "'"),
    "nl": (rf"(?<!\S)(?<![zZ]o )(?<!\b[mzMZ] )' (?=[tnk]\b|s(?:-| (?:{OF_TIMES})\b))", "'"),
    "tr": (r"(?<!\S)% (?=\d)", "%"),
    # its Latin words are tokenised as English
    "zh": (r"(?<=[^\W_]) '(?=[^\W\d_])", "'"),
}
KEPT = "\ufdd1"  # beside a sign of a currency that Moses would join to the next word: 100 €a month
# with the closing one of English, which Moses would leave apart, and pair the next ones wrong
QUOTES = re.compile("^['\"`\u201c-\u201e]+$")
# where guillemets have no space inside, and point outwards
WITH_GUILLEMETS = ("ar", "be", "ca", "el", "es", "fa", "hy", "it", "pt", "ru", "uk", "vi")
IN_GUILLEMETS = re.compile("(?<=\xab) | (?=\xbb)")
BETWEEN_DIGITS = re.compile(r"(?<=\d) : (?=\d)")
# what ends a sentence, and signs that Moses' tokens have apart from the word before: Java™, km²;
# 45°, and of 20 °C the unit
SIGNS = "\u00ae\u00b2\u00b3\u00b9\u2032\u2033\u2070-\u2099\u2122"
BEFORE_ENDS = re.compile(
    rf" (?=[{ENDS}{SIGNS}])|(?<=\d) (?=\u00b0(?!\w| [CF]\b))|(?<=\u00b0) (?=[CF]\b)"
)
# what a tokeniser makes of an address: its parts end where a word follows a word. A question mark
# belongs to it before NAME =, a colon before a port.
ADDRESS = re.compile(
    r"\b(?:https?|ftp) : / / \S+"
    r"(?: [/=&#_~%+]+(?: (?![/?=&#_~%+:] )\S+)?| \?(?= \S+ =) \S+| : \d+\b)*"
)


@dataclass(frozen=True)
class TextFormat:
    """How the file of a system becomes text."""

    input: str  # generate, or plain: one sentence per line
    remove_bpe: str  # one of REMOVE_BPE
    detokenize: str  # one of DETOKENIZE
    target_lang: Optional[str]  # None: from the log of fairseq-generate

    def detokenizer(self) -> Callable[[str], str]:
        """Return the function from a line of words, without BPE, to text."""
        return str.rstrip if self.detokenize == "none" else moses_detokenizer(self.target_lang)


def text_format(
    input: str = "generate",
    remove_bpe: Optional[str] = None,
    detokenize: Optional[str] = None,
    target_lang: Optional[str] = None,
) -> TextFormat:
    """Complete a format: what fairseq-generate printed is made text, plain lines are text."""
    generated = input == "generate"
    remove_bpe = remove_bpe or ("subword_nmt" if generated else "none")
    moses = generated and remove_bpe != "sentencepiece"
    return TextFormat(input, remove_bpe, detokenize or ("moses" if moses else "none"), target_lang)


def language(code: str) -> str:
    """Check a language code of the command line, and return it unchanged."""
    if LANGUAGE.fullmatch(code):
        return code
    raise argparse.ArgumentTypeError(
        f"{code!r} is not a language code; give two or three letters, such as de or zh_CN"
    )


def base_language(code: Optional[str]) -> str:
    """Return the language that a code stands for; without one, an empty text.

    >>> base_language("zh_CN"), base_language("pt-br"), base_language("zho_Hans")
    ('zh', 'pt', 'zh')
    """
    base = re.split("[-_]", (code or "").lower())[0]
    return SAME_LANGUAGE.get(base, base)


def remove_bpe(line: str, kind: str) -> str:
    """Join subword units to words, as fairseq's ``--post-process`` does.

    >>> remove_bpe("cap@@ sul@@ es vote", "subword_nmt")
    'capsules vote'
    >>> remove_bpe("▁cap sul es ▁vote", "sentencepiece")
    'capsules vote'
    """
    if kind == "subword_nmt":
        return (line + " ").replace("@@ ", "").rstrip()
    if kind == "sentencepiece":
        return line.replace(" ", "").replace("\u2581", " ").strip()
    return line


def moses_detokenizer(lang: Optional[str]) -> Callable[[str], str]:
    """Build the Moses detokeniser (sacremoses) of a language; ``None`` has Moses' common rules.

    **D**: sacremoses joins ideographs, but leaves a space before full-width punctuation, next to
    Latin words and within ``54, 000``, where Chinese and Japanese have none. These spaces are also
    removed, and with them those of English between quotes and dashes.

    **D**: Moses has rules for the apostrophes of English, French and Italian. Of other languages it
    would take each for a quote, and leave spaces: l' home, zo' n. One between letters is part of a
    word where a language uses it so, and elsewhere where one of its sides has two letters at most,
    or a single consonant where a quote is as likely there; where words begin or end in one, as of
    Dutch or Maltese, that is left to them. The parts of an address and of a time are joined, too,
    and the ends of sentences in other scripts; typographic quotes are joined to what they quote,
    and the sign of a currency is left where it is.
    """
    from sacremoses import MosesDetokenizer

    base = base_language(lang)
    # D: its rule for Czech looks at the end of the line: where that is a number, all numbers of the
    # line would lose the space before them
    moses = MosesDetokenizer(lang="" if base == "cs" else base)
    moses.IS_OPEN_QUOTE = QUOTES
    after_number = re.compile(rf"(?<=\d )[{re.escape(moses.IsSc)}](?= (?!\d))")
    place, joined = PLACES.get(base, (r"(?!)", ""))
    places = re.compile(place)

    kinds = {**dict.fromkeys(OF_WORDS, INSIDE_WORDS), **dict.fromkeys(WITH_QUOTES, NO_QUOTES)}
    apostrophe = None if base in WITH_APOSTROPHES else kinds.get(base, AT_SHORT_WORDS)

    def detokenize(line: str) -> str:
        # the hyphen inside a word, in Google's tokens of WMT16
        line = moses.unescape_xml(line).replace(" ##AT##-##AT## ", "-")
        line = ADDRESS.sub(lambda found: found[0].replace(" ", ""), line)
        line = places.sub(joined, BETWEEN_DIGITS.sub(":", line))
        if base in ELIDING:
            line = ELIDED.sub("'", line)
        if apostrophe is not None:
            line = apostrophe.sub("'", line)
        line = after_number.sub(rf"\g<0>{KEPT}", line)
        text = moses.detokenize(line.split(), unescape=False).replace(APART, "'").replace(KEPT, "")
        text = BEFORE_ENDS.sub("", text)
        if base in WITH_GUILLEMETS:
            text = IN_GUILLEMETS.sub("", text)
        return NO_SPACE.sub("", text) if base in WITHOUT_SPACES else text

    return detokenize
