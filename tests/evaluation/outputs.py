"""Outputs of fairseq-generate: good, half wrong, damaged; and test sets in markup."""

import html
import re
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence

REFERENCE = ["Don't go there.", "It's 5 (five).", "A red house, a blue sea."] * 4
TOKENS = [
    "Don &apos;t go th@@ ere .",
    "It &apos;s 5 ( fi@@ ve ) .",
    "A red house , a blue sea .",
] * 4
DICTIONARY = "2026-01-01 00:00:00 | INFO | fairseq.tasks.translation | [{}] dictionary: 200 types"
SCORES = [str(number / 16) for number in range(12)]  # of every segment
# lines of capsnmt-translate --scores or --nbest, fairseq-generate, Marian and Sockeye
TABLES = (
    "-0.4132\t%s",
    "7\t%s",
    "H-7\t-0.4132\t%s",
    "7 ||| %s ||| F0= -3.2",
    '{"translation": "%s"}',
)


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8"))
    return path


def generated(
    hypotheses: Sequence[str], sources: Optional[Sequence[str]] = None, language: str = "en"
) -> List[str]:
    """fairseq-generate's output, last sentence first."""
    lines = [DICTIONARY.format(language)]
    for number, source in reversed([*enumerate(sources or ["x"] * len(hypotheses))]):
        lines += [f"S-{number}\t{source}", f"T-{number}\tx"]
        lines += [f"H-{number}\t-0.5\t{hypotheses[number]}"]
    return lines


def write_outputs(folder: Path) -> Dict[str, str]:
    """Write a perfect system, one that is half wrong, and others; their paths by name."""
    half = [line if i % 2 else "nothing of it" for i, line in enumerate(TOKENS)]
    plain = [line if i % 2 else "nothing of it" for i, line in enumerate(REFERENCE)]
    contents = {
        "good": generated(TOKENS),
        "half": generated(half),
        "third": generated([line if i % 3 else "there" for i, line in enumerate(TOKENS)]),
        "reference": REFERENCE,
        "plain": plain,
        "short": generated(TOKENS[:5]),
        "segmented": TOKENS,
        "unknown": ["a <<unk>> sea"] * 12,
        **{f"table-{n}": [line % text for text in REFERENCE] for n, line in enumerate(TABLES)},
        "unlogged": generated(TOKENS)[1:],
        "german": [line.replace("[en]", "[de]") for line in generated(TOKENS)],
        "chinese": [line.replace("[en]", "[zh]") for line in generated(["我们 走 吧 。"] * 12)],
        "characters": ["我们走吧！"] * 12,
        "twice": generated(TOKENS) * 2,
        "latin": ["unus duo tres"] * 3,
        "blank": [""] * len(TOKENS),
        "gap": [line for line in generated(TOKENS) if "-7\t" not in line],
        "numbers": SCORES,
        "few": SCORES[1:],
        "word": [*SCORES[1:], "good"],
        "nan": [*SCORES[1:], "nan"],
        "others.json": ['{"a": [{"x": 1}]}'],
        "two.json": ['{"a": [], "b": []}'],
    }
    paths = {name: str(write_lines(folder / name, lines)) for name, lines in contents.items()}
    (folder / "latin1").write_bytes("schön\n".encode("latin-1"))
    (folder / "empty").touch()
    return {**paths, "latin1": str(folder / "latin1"), "empty": str(folder / "empty")}


def element(name: str, lines: List[str], **attributes: str) -> str:
    """A document or a side of one, with its segments."""
    given = "".join(f' {key}="{value}"' for key, value in attributes.items())
    segments = "\n".join(f'<seg id="{n}">{html.escape(line)}</seg>' for n, line in enumerate(lines))
    return f"<{name}{given}>\n<p>\n{segments}\n</p>\n</{name}>"


def sgm(*texts: List[str], key: str) -> str:
    """References of two documents: sets with a ``refid``, or documents with a ``sysid``."""
    parts = [
        "".join(element("doc", part, docid=name, sysid=f"ref{number}" if key == "sysid" else "r")
                for name, part in (("d", text[:5]), ("e", text[5:])))
        for number, text in enumerate(texts)
    ]  # fmt: skip
    if key == "sysid":
        return f'<refset setid="x">{"".join(parts)}</refset>'
    return "".join(f'<refset refid="{n}">{part}</refset>' for n, part in enumerate(parts))


def swapped(markup: str) -> str:
    """The same with its documents in another order."""
    start, *ends = (found.start() for found in re.finditer("<doc|(?<=</doc>)", markup))
    middle, end = ends[0], ends[-1]
    return markup[:start] + markup[middle:end] + markup[start:middle] + markup[end:]


def wmt_xml(*texts: List[str], documents: int = 2, source: Sequence[str] = ()) -> str:
    """A source, references by A, B, ..., and a system's output of each of two documents."""
    content, sources = "", [*source] or ["quelle"] * len(texts[0])
    for at, part in enumerate((slice(5), slice(5, None))):
        named = enumerate(texts if at < documents else texts[:1])
        content += f"<doc id='{at}'>" + element("src", sources[part], lang="xx")
        content += "".join(
            element("ref", text[part], lang="en", translator=chr(65 + number))
            for number, text in named
        )
        content += element("hyp", ["output"] * 5, system="s") + "</doc>"
    return f"<?xml version='1.0' encoding='utf-8'?>\n<dataset id='x'>\n{content}\n</dataset>"
