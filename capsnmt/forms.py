"""Forms of text: what a line may be besides plain text, how it is recognised, and what to do.

Test sets are published in markup, whose sentences are elements: NIST's SGM, IWSLT's and WMT's XML.

Every reader of text asks here: preparation, translation, evaluation, probing. docs/data.md, "Forms
of text", says what each of them does with each form.
"""

import html
import re
import unicodedata
from collections import Counter
from types import MappingProxyType
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from capsnmt.cli import ConfigurationError, say, shown

# Marks of subwords, with the flag that joins them; a text of words has none, or hardly any.
MARKS = {
    "subword_nmt": re.compile(r"\S@@(?= |$)"),
    "sentencepiece": re.compile("\u2581"),
    # the hyphen of published tokens is none: rich ##AT##-##AT## text
    "wordpiece": re.compile(r"(?<=\S )##(?!AT##)\w"),
    "BPE with end marks": re.compile(r"\S</w>(?= |$)"),
    "joiners of OpenNMT": re.compile("\uffed"),
    "bytes of sentencepiece": re.compile("<0x[0-9A-F]{2}>"),
}
UNKNOWN = "unknown words (<unk>)"
LOST = "characters that a conversion lost (U+FFFD)"
# what the second and later bytes of a character in UTF-8 are in cp1252, or in latin1
LATER = "[\x80-\xbf" + bytes(range(0x80, 0xA0)).decode("cp1252", "ignore") + "]"
# bytes of Windows read as latin1, where U+0085 ends a line elsewhere; of UTF-8 as one of the two: a
# character of Latin or Vietnamese text, but none as a capital before a sign; of others, two
WRONG = "characters of a wrong conversion (U+0080 to U+009F, or as \u00c3\u00bc for \u00fc)"
NO_WORDS = {
    **{f"marks of subwords ({kind})": pattern for kind, pattern in MARKS.items()},
    # which a model would not take for text; mBART's have the languages
    "symbols of a dictionary": re.compile(
        r"(?:^|(?<= ))(?:</?s>|<pad>)(?= |$)|\[[a-z]{2}_[A-Z]{2}\]"
    ),
    UNKNOWN: re.compile("<unk>"),  # fairseq-generate writes <<unk>> in references
    LOST: re.compile("\ufffd"),
    WRONG: re.compile(
        "[\x80-\x84\x86-\x9f]|\u00c3[\xa1-\xaa\xac-\xba\xbc-\xbe]|\u00e2\u20ac"
        f"|(?:[\xc2-\xdf]{LATER}|[\xe0-\xef]{LATER}{{2}}){{2}}|\xe1[\xba\xbb]{LATER}"
    ),
    "tabs, as a table has": re.compile(r"\S {0,9}\t\s{0,9}\S"),
    "fields, as an n-best list has (|||)": re.compile(r"(?:^| )\|\|\|(?= |$)"),
    "records of JSON": re.compile(r'^[{\[] ?"'),
    'quotes of a CSV file (one at each end, "" inside)': re.compile('^"[^"]*(""[^"]*)+"$'),
}
# of HTML, or of tokens that Moses has escaped
ESCAPED = re.compile(r"&(?:apos|quot|amp|lt|gt|bar|bra|ket|nbsp|#\w{1,6});")
ESCAPES = "escapes as &apos;, which are taken for words"
# what ends a sentence or a part of it, of which Moses knows those of Latin letters: Arabic, Indic,
# Armenian, Ethiopic, Khmer, Burmese, Tibetan
ENDS = "\u0589\u055d\u060c\u061b\u061f\u06d4\u0964\u0965\u0f0d\u0f0e\u104a\u104b\u1361-\u1368"
ENDS += "\u17d4\u17d5"
END_APART = re.compile(rf" [.{ENDS}]$")
END_JOINED = re.compile(rf"\S[.{ENDS}]$")
# said where it is in many lines
TOKENS = "a space before the end, as tokens, which are tokenised again unless the tokeniser is none"
# a line without these has none of them: most of a corpus is asked only once
SUSPECT = re.compile(
    f'@@|\u2581|\uffed|##|<|\t|\ufffd|[a-z]_[A-Z]|[\x80-\x9f]|\\|\\|\\||^[{{[]|^".*""'
    f"|[\xc2-\xef]{LATER}"
)
# the beginning of a file of markup, which is no text of one sentence a line
MARKUP = re.compile(
    r"\s*<(?:\?xml|!doctype|tmx|xliff|srcset|refset|tstset|mteval|dataset|doc|url|html)\b", re.I
)
# D: so large a share of lines is no accident: such a text cannot be used as it is
SHARE = 0.1
Fixes = Mapping[str, Optional[str]]  # a key of NO_WORDS -> what mends it
NO_FIXES: Fixes = MappingProxyType({})

# names of files of segments in elements, as test sets are published
MARKED = re.compile(r"\.(sgml?|xml)(\.gz)?$")
SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.IGNORECASE | re.DOTALL)
OPENED = re.compile(r"<seg\b", re.IGNORECASE)
# what begins segments of one reference, or of another text: a document of SGM, a side of WMT's XML
REFERENCE = re.compile(r"<(refset|doc|src|ref|hyp)\b([^>]*)>", re.IGNORECASE)
SIDE = re.compile(r"<(src|ref|hyp|tmx)\b", re.IGNORECASE)
# what a segment is known by: its document, and its number there
DOCUMENT = re.compile(r"""<doc\b[^>]*?\b(?:doc)?id\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
NUMBER = re.compile(r"""<seg\b[^>]*?\bid\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
LABEL = re.compile(r"""\b(refid|sysid|translator)\s*=\s*["']([^"']*)""")


def marks_of(words: Iterable[str]) -> Optional[str]:
    """Return fairseq's name of the subwords whose marks some words have; ``None`` of plain words.

    >>> marks_of(["a@@", "b"]), marks_of(["\u2581a"]), marks_of(["a"])
    ('subword_nmt', 'sentencepiece', None)
    """
    kinds = "subword_nmt", "sentencepiece"
    return next((kind for x in words for kind in kinds if MARKS[kind].search(x)), None)


class Words:
    """What of a text of words, seen line by line, is none; of tokens, escapes are."""

    def __init__(self, of_tokens: bool = False) -> None:
        self.of_tokens = of_tokens
        self.lines = 0
        self.found: Counter[str] = Counter()  # form -> how many lines have it
        self.first: Dict[str, Tuple[int, str]] = {}  # of these, with its number

    def see(self, line: str, *others: str) -> None:
        """Take note of a line; ``others`` are forms that only the caller can see."""
        self.lines += 1
        forms = [*others]
        if SUSPECT.search(line):
            forms += [form for form, pattern in NO_WORDS.items() if pattern.search(line)]
        if not self.of_tokens and ESCAPED.search(line):
            forms.append(ESCAPES)
        if not self.of_tokens and END_APART.match(line[-2:]):
            forms.append(TOKENS)
        for form in forms:
            self.found[form] += 1
            self.first.setdefault(form, (self.lines, line))

    def check(self, name: str, fix: str, fixes: Fixes = NO_FIXES, refuses: bool = True) -> None:
        """Warn of what was found, or refuse it where it is in many lines.

        ``fix`` mends it; ``fixes`` has that of a form, or ``None`` where any number of lines may
        have the form.
        """
        for form, count in self.found.items():
            many = count > SHARE * self.lines
            if form == TOKENS and not many:
                continue
            how = fixes.get(form, fix) if form != TOKENS else None
            # catalogues may have escapes
            if refuses and many and how is not None and form != ESCAPES:
                raise ConfigurationError(f"{name}: {self._in_words(form)}; {how}")
            advice = "" if how is None else f"; {how} if they are not text"
            say(f"warning: {name}: {self._in_words(form)}{advice}")

    def _in_words(self, form: str) -> str:
        number, line = self.first[form]
        return (
            f"{self.found[form]:,} of {self.lines:,} lines have {form}, as line {number:,}: "
            f"{shown(line[:60])}"
        )


def check_words(lines: Iterable[str], name: str, fix: str, fixes: Fixes = NO_FIXES) -> None:
    """Warn of what in a text of words is none, or refuse it, as `Words.check` does."""
    words = Words(of_tokens=True)  # that escapes are on one side only: see test_set.py
    for line in lines:
        words.see(line)
    words.check(name, fix, fixes)


def plain(lines: Iterable[str], name: str) -> Iterator[str]:
    """Yield the lines of a text of one sentence a line; raise if it begins as markup."""
    begun = False
    for line in lines:
        if not begun and MARKUP.match(line):
            raise ConfigurationError(
                f"{name}: begins with {shown(line[:40])}, so it is markup and no text; name it "
                f".sgm or .xml if it is a test set of <seg> elements, train.tags.LANGUAGE if it is "
                f"IWSLT's training text, or give a file of each language, one sentence a line"
            )
        begun = begun or bool(line.strip())
        yield line


def one_form(lines: Iterable[str], name: str) -> List[str]:
    """Return lines in Unicode's form NFC, as models are trained; say how many were not.

    Letters with marks can be one character or several: equal for a reader, and not for a metric.
    """
    text = list(lines)
    composed = [unicodedata.normalize("NFC", line) for line in text]
    changed = sum(old != new for old, new in zip(text, composed))
    if changed:
        say(
            f"note: {name}: {changed:,} of {len(text):,} lines are not in Unicode's NFC; they are "
            f"compared in it"
        )
    return composed


def read_segments(text: Iterable[str], name: str) -> Iterator[str]:
    """Yield the ``<seg>`` elements of NIST's SGM or of IWSLT's XML.

    D: no XML parser, because not all of these files are well-formed (some have a bare ``&``).
    Entities become characters, as in mteval-v13a and in the training text. A segment may span
    lines. WMT's XML may have several texts, which would follow one another: it is refused.
    """
    whole = "\n".join(text)
    segments, outside = SEGMENT.findall(whole), SEGMENT.sub("", whole)
    sides = sorted({side.lower() for side in SIDE.findall(outside)})
    if len(sides) > 1 or "tmx" in sides:
        raise ConfigurationError(
            f"{name}: has {' and '.join(sides)}, several texts; give each in a file of its own, "
            f"one sentence a line"
        )
    # of one that does not end, the next one is a part
    nested = (number for number, each in enumerate(segments, 1) if OPENED.search(each))
    unended = next(nested, len(segments) + 1 if OPENED.search(outside) else 0)
    if unended or not segments:
        what = f"segment {unended} does not end" if unended else "no <seg> element"
        raise ConfigurationError(f"{name}: {what}; give a complete file of SGM or IWSLT XML")
    return (" ".join(html.unescape(each).split()) for each in segments)


def check_order(files: Mapping[str, Iterable[str]]) -> None:
    """Compare the segments of all texts in files of markup, by their names.

    Raise if two texts have the same ones in another order; warn if as many are others.
    """
    segments: Dict[str, List[Tuple[str, str]]] = {}
    for name, text in files.items():
        found: Dict[Tuple[str, str], List[Tuple[str, str]]] = {}
        document = ""
        for side, label, part in _parts(text):
            document = next(iter(DOCUMENT.findall(part)), document)
            numbers = ((document, number) for number in NUMBER.findall(part))
            found.setdefault((side, label), []).extend(numbers)
        texts = {key: each for key, each in found.items() if each}
        for key in [key for key in texts if key[0] == "hyp" and len(texts) > 1]:
            del texts[key]  # no text of a test set
        for (side, label), each in texts.items():
            segments[f"{name} ({label or side})" if len(texts) > 1 else name] = each
    first = next(iter(segments), "")
    for name, each in segments.items():
        others = sum(one != other for one, other in zip(each, segments[first]))
        if others and sorted(each) == sorted(segments[first]):
            raise ConfigurationError(
                f"{name} has the segments of {first} in another order; give both in one order"
            )
        if others and len(each) == len(segments[first]):
            say(
                f"warning: {others:,} of {len(each):,} segments of {name} have other ids than "
                f"those of {first}"
            )


def _parts(text: Iterable[str]) -> Iterator[Tuple[str, str, str]]:
    """Yield the parts of a file of markup: the side and the name of the text, and the markup.

    The names of references are the translators', or the ``refid`` and ``sysid`` of SGM.
    """
    parts = ["", "", *REFERENCE.split("\n".join(text))]
    side, of_set, of_text = "", "", ""
    for tag, attributes, content in zip(parts[::3], parts[1::3], parts[2::3]):
        label = dict(LABEL.findall(attributes))
        if tag.lower() == "refset":
            side, of_set, of_text = "", label.get("refid", ""), ""
        elif tag:
            side, of_text = tag.lower(), label.get("sysid") or label.get("translator", "")
        yield side, f"{of_set} {of_text}".strip(), f"<{tag}{attributes}>{content}"


def read_texts(text: Iterable[str], name: str) -> Tuple[List[str], Dict[str, List[str]]]:
    """Return source and references of NIST's SGM or WMT's XML: the segments, in the file's order.

    Only WMT's XML has a source beside references, and its system outputs are skipped.
    """
    source: List[str] = []
    found: Dict[str, List[str]] = {}
    for side, label, part in _parts(text):
        if side != "hyp" and OPENED.search(part):
            segments = source if side == "src" else found.setdefault(label, [])
            segments.extend(read_segments(part.split("\n"), name))
    return source, found
