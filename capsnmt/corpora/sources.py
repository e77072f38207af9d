"""Source files: cached, in a folder of the user, or fetched from a mirror."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capsnmt.checksums import has_checksum
from capsnmt.cli import ConfigurationError, ExecutionError
from capsnmt.corpora.console import say
from capsnmt.files import BLOCK, temporary_path

CHECKSUM = re.compile("([0-9a-f]{64}|md5:[0-9a-f]{32})?")
PART = re.compile(r"\.\d\d")


@dataclass(frozen=True)
class SourceFile:
    """A published file.

    Attributes:
        urls: its URLs, tried in this order; an entry that is a list gives the parts of the file.
        checksum: its SHA-256, or ``md5:`` and its MD5 if no SHA-256 is published. If empty, the
            first download is trusted and recorded.
        otherwise: another file of the recipe, with the same text in another packing. If it is an
            archive and this file is not, the archive's member has this file's name.
    """

    urls: tuple[Any, ...] = ()
    checksum: str = ""
    otherwise: str = ""


@dataclass(frozen=True)
class Store:
    """Where source files come from and where they are kept.

    Attributes:
        folder: the cache.
        local: a folder of the user that holds the files; nothing is fetched then.
        offline: use the cache only.
        mirrors: URLs of folders that are tried first, for every file.
        first_use: file -> SHA-256 at its first download, for files without a known checksum.
        note: called with each file of the cache and whether the recipe has its checksum.
        match: returns whether a file has a checksum.
    """

    folder: Path
    local: Path | None = None
    offline: bool = False
    mirrors: Sequence[str] = ()
    first_use: Mapping[str, str] = field(default_factory=dict)
    note: Callable[[Path, bool], None] = lambda path, known: None
    match: Callable[[Path, str], bool] = has_checksum

    def has(self, name: str, expected: str) -> bool:
        """Return whether the cache has the file ``name`` undamaged.

        Args:
            name: the file's name.
            expected: its checksum. If empty, an existing file is complete: files enter the cache
                by one rename.
        """
        path = self.folder / name
        return path.is_file() and (not expected or self.match(path, expected))

    def check_online(self, name: str) -> None:
        """Raise if the file ``name``, which the cache lacks, may not be fetched.

        Raises:
            ConfigurationError: ``offline`` is set.
        """
        path = self.folder / name
        if self.offline:
            raise ConfigurationError(
                f"--offline: {path} is {'damaged' if path.exists() else 'missing'}: run once "
                f"without --offline, or give the folder that has {name} with --local"
            )


def check_names(files: Iterable[str]) -> None:
    """Raise unless each of ``files`` is a plain file name, so that nothing leaves the cache.

    Raises:
        ConfigurationError: one has a folder in its name.
    """
    for name in files:
        if Path(name).name != name:
            raise ConfigurationError(f"{name!r}: a plain file name is needed, without folders")


def obtain(
    name: str, files: Mapping[str, SourceFile], mirrors: Sequence[str], store: Store
) -> Path:
    """Return the path of the published file ``name``, or of its other packing.

    Args:
        name: a key of ``files``.
        files: the recipe's files.
        mirrors: the recipe's URLs of folders that have its files.
        store: where to look and what to fetch to.

    Raises:
        ConfigurationError: it is missing where nothing may be fetched.
        ExecutionError: no mirror provides it; the message lists every URL tried.
    """
    packings = [name, files[name].otherwise] if files[name].otherwise else [name]
    if store.local is not None:
        return _local(packings, files, store.local, store)
    path = _cached(packings, files, store) or _fetched(packings, files, mirrors, store)
    store.note(path, bool(files[path.name].checksum))
    return path


def _expected(name: str, files: Mapping[str, SourceFile], store: Store) -> str:
    return files[name].checksum or store.first_use.get(name, "")


def _cached(packings: Sequence[str], files: Mapping[str, SourceFile], store: Store) -> Path | None:
    for packing in packings:
        if store.has(packing, _expected(packing, files, store)):
            return store.folder / packing
    store.check_online(packings[0])
    return None


def _fetched(
    packings: Sequence[str],
    files: Mapping[str, SourceFile],
    mirrors: Sequence[str],
    store: Store,
) -> Path:
    from capsnmt.corpora.download import UnavailableError, download

    answers: list[str] = []
    for packing in packings:
        expected = _expected(packing, files, store)
        addresses = list(_addresses(packing, files[packing], store.mirrors, mirrors))
        try:
            return download(packing, expected, addresses, store.folder)
        except UnavailableError as error:
            answers += error.answers
    changed = ""
    if any(packing in store.first_use and not files[packing].checksum for packing in packings):
        changed = (
            "that checksum was recorded at its first download: for another version give another "
            "--output; "
        )
    tried = f"tried {'; '.join(answers)}" if answers else "the recipe has no address of it"
    raise ExecutionError(
        f"{packings[0]} could not be fetched: {tried}; {changed}"
        f"fetch it by other means and give its folder with --local"
    )


def _addresses(
    name: str, file: SourceFile, first: Sequence[str], last: Sequence[str]
) -> Iterable[list[str]]:
    """Yield the addresses of a file, each a list of its parts."""
    parts = max((len(url) for url in file.urls if isinstance(url, list)), default=0)
    for mirror in first:
        yield [f"{mirror.rstrip('/')}/{name}"]
        if parts:
            yield [f"{mirror.rstrip('/')}/{name}.{part:02d}" for part in range(parts)]
    for url in file.urls:
        yield url if isinstance(url, list) else [url]
    for mirror in last:
        yield [f"{mirror.rstrip('/')}/{name}"]


def _local(
    packings: Sequence[str], files: Mapping[str, SourceFile], folder: Path, store: Store
) -> Path:
    looked_for: list[str] = []
    for packing in packings:
        names = [packing]
        if packing.endswith(".gz") and not packing.endswith(".tar.gz"):
            names.append(packing[: -len(".gz")])
        elif not packing.endswith((".gz", ".tgz", ".zip")):
            names.append(f"{packing}.gz")
        for path in (folder / name for name in names):
            if path.is_file():
                expected = files[packing].checksum
                # D: other versions are allowed, but are never passed off as the published one.
                if expected and path.name == packing and not store.match(path, expected):
                    say(f"  note: {path} is not the published file (checksum differs); used as is")
                return path
        parts = sorted(part for part in folder.glob(f"{packing}.*") if PART.fullmatch(part.suffix))
        if parts:
            return _joined(parts, store.folder / packing)
        looked_for += names
    raise ConfigurationError(
        f"--local {folder}: {' or '.join(looked_for)} is missing; put it there, "
        f"or leave out --local to fetch what is missing"
    )


def _joined(parts: Sequence[Path], path: Path) -> Path:
    """Return the file made of ``parts``, joined again only if one is newer."""
    newest = max(part.stat().st_mtime_ns for part in parts)
    size = sum(part.stat().st_size for part in parts)
    if path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (size, newest):
        return path
    say(f"  join {', '.join(part.name for part in parts)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_path(path).open("wb") as joined:
        for part in parts:
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, joined, BLOCK)
    os.utime(temporary_path(path), ns=(newest, newest))
    os.replace(temporary_path(path), path)
    return path
