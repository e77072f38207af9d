"""Readers of test sets in markup, whose sentences are elements: NIST's SGM, IWSLT's and WMT's XML.

A reader takes the lines of a file and its name for errors.
"""

from __future__ import annotations

import html
import re
from typing import Dict, Iterable, Iterator, List, Set, Tuple

from capsnmt.cli import ConfigurationError

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.IGNORECASE)
OPENED = re.compile(r"<seg\b", re.IGNORECASE)
# what begins segments of one reference, or of another text: a document of SGM, a side of WMT's XML
REFERENCE = re.compile(r"<(refset|doc|src|ref|hyp)\b([^>]*)>", re.IGNORECASE)
SIDE = re.compile(r"<(src|ref|hyp|tmx)\b", re.IGNORECASE)
LABEL = re.compile(r"""\b(refid|sysid|translator)\s*=\s*["']([^"']*)""")


def read_segments(text: Iterable[str], name: str) -> Iterator[str]:
    """Yield the ``<seg>`` elements of NIST's SGM or of IWSLT's XML.

    D: no XML parser, because not all of these files are well-formed (some have a bare ``&``).
    Entities become characters, as in mteval-v13a and in the training text. A segment may span
    lines. WMT's XML may have several texts, which would follow one another: it is refused.
    """
    pending, segments = "", 0
    sides: Set[str] = set()
    for line in text:
        sides.update(map(str.lower, SIDE.findall(SEGMENT.sub("", line))))
        if len(sides) > 1 or "tmx" in sides:
            raise ConfigurationError(
                f"{name}: has {' and '.join(sorted(sides))}, several texts; give each in a "
                f"file of its own, one sentence a line"
            )
        pending = f"{pending} {line}" if pending else line
        end = 0
        for match in SEGMENT.finditer(pending):
            segments += 1
            end = match.end()
            yield " ".join(html.unescape(match[1]).split())
        opened = OPENED.search(pending, end)
        pending = pending[opened.start() :] if opened else ""
    if pending or not segments:
        what = f"segment {segments + 1} does not end" if pending else "no <seg> element"
        raise ConfigurationError(f"{name}: {what}; give a complete file of SGM or IWSLT XML")


def read_texts(text: Iterable[str], name: str) -> Tuple[List[str], Dict[str, List[str]]]:
    """Return source and references of NIST's SGM or WMT's XML: the segments, in the file's order.

    Only WMT's XML has a source beside references, and its system outputs are skipped. The names of
    references are the translators', or the ``refid`` and ``sysid`` of SGM.
    """
    source: List[str] = []
    found: Dict[str, List[str]] = {}
    parts = ["", "", *REFERENCE.split("\n".join(text))]
    side, of_set, of_text = "", "", ""
    for tag, attributes, content in zip(parts[::3], parts[1::3], parts[2::3]):
        label = dict(LABEL.findall(attributes))
        if tag.lower() == "refset":
            side, of_set, of_text = "", label.get("refid", ""), ""
        elif tag:
            side, of_text = tag.lower(), label.get("sysid") or label.get("translator", "")
        if side != "hyp" and OPENED.search(content):
            named = f"{of_set} {of_text}".strip()
            segments = source if side == "src" else found.setdefault(named, [])
            segments.extend(read_segments(content.split("\n"), name))
    return source, found


def read_references(text: Iterable[str], name: str) -> Dict[str, List[str]]:
    """Return the references of `read_texts`, of which there must be one."""
    _, found = read_texts(text, name)
    if not found:
        raise ConfigurationError(f"{name}: no <seg> element of a reference; give one that has them")
    return found
