"""Source files: in the cache, in a folder of the user's own, or on a mirror."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capsnmt.corpora.download import UnavailableError, download
from capsnmt.corpora.errors import PreparationError
from capsnmt.corpora.files import BLOCK, beside, checksum
from capsnmt.corpora.progress import say

CHECKSUM = re.compile("([0-9a-f]{64}|md5:[0-9a-f]{32})?")
PART = re.compile(r"\.\d\d")


@dataclass(frozen=True)
class SourceFile:
    """A published file.

    Attributes:
        urls: its addresses, tried in this order; one that is a list has the file cut in parts.
        checksum: its SHA-256, or ``md5:`` and its MD5 where no better one is published; empty
            where none is known: then the first use is trusted and recorded.
        otherwise: another file of the recipe, with the same text in another packing; where it is
            an archive in the place of a plain file, the member is called as the plain file is.
    """

    urls: tuple[Any, ...] = ()
    checksum: str = ""
    otherwise: str = ""


@dataclass(frozen=True)
class Store:
    """Where source files come from and go to, as the command line says.

    Attributes:
        folder: the cache.
        local: a folder of the user's own that has the files instead; nothing is fetched then.
        offline: use the cache only.
        mirrors: addresses of folders that are asked first, for every file.
        first_use: file -> SHA-256 of those that no recipe has a checksum of, when they were
            first fetched.
        note: is told of each file of the cache, and whether the recipe has its checksum.
    """

    folder: Path
    local: Path | None = None
    offline: bool = False
    mirrors: Sequence[str] = ()
    first_use: Mapping[str, str] = field(default_factory=dict)
    note: Callable[[Path, bool], None] = lambda path, known: None


def check_names(files: Iterable[str]) -> None:
    """Raise a PreparationError unless each of `files` names a file in the cache itself."""
    for name in files:
        if Path(name).name != name:
            raise PreparationError(f"{name!r}: a plain file name is needed, without folders")


def cached(path: Path, expected: str, offline: bool) -> bool:
    """Return whether `path` is whole; if not, it is to be fetched.

    Raises:
        PreparationError: it is not, and `offline` is set.
    """
    if path.is_file() and checksum(path, expected) == expected:
        return True
    if offline:
        raise PreparationError(
            f"--offline: {path} is {'damaged' if path.exists() else 'missing'}: run once without "
            f"--offline, or give the folder that has {path.name} with --local"
        )
    return False


def obtain(
    name: str, files: Mapping[str, SourceFile], mirrors: Sequence[str], store: Store
) -> Path:
    """Return where the published file `name`, or what it is `otherwise`, lies.

    Args:
        name: a key of `files`.
        files: the recipe's files.
        mirrors: the recipe's addresses of folders that have its files.
        store: where to look.

    Raises:
        PreparationError: it is missing or damaged and no mirror gives it, naming each of them.
    """
    packings = [name, files[name].otherwise] if files[name].otherwise else [name]
    if store.local is not None:
        return _local(packings, files, store.local, store.folder)
    path = _cached(packings, files, store) or _fetched(packings, files, mirrors, store)
    store.note(path, bool(files[path.name].checksum))
    return path


def _expected(name: str, files: Mapping[str, SourceFile], store: Store) -> str:
    return files[name].checksum or store.first_use.get(name, "")


def _cached(packings: Sequence[str], files: Mapping[str, SourceFile], store: Store) -> Path | None:
    for packing in packings:
        path, expected = store.folder / packing, _expected(packing, files, store)
        # Without a checksum, a file that is there is whole: it is put there by one rename.
        if path.is_file() and expected in {"", checksum(path, expected)}:
            return path
    if store.offline:
        first = packings[0]
        cached(store.folder / first, _expected(first, files, store), offline=True)
    return None


def _fetched(
    packings: Sequence[str],
    files: Mapping[str, SourceFile],
    mirrors: Sequence[str],
    store: Store,
) -> Path:
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
            "its first use recorded that checksum: for another version give another --output; "
        )
    raise PreparationError(
        f"{packings[0]} could not be fetched: tried {'; '.join(answers)}; {changed}"
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
    packings: Sequence[str], files: Mapping[str, SourceFile], folder: Path, cache: Path
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
                _note(path, packing, files[packing].checksum)
                return path
        parts = sorted(part for part in folder.glob(f"{packing}.*") if PART.fullmatch(part.suffix))
        if parts:
            return _joined(parts, cache / packing)
        looked_for += names
    raise PreparationError(
        f"--local {folder}: {' or '.join(looked_for)} is missing; put it there, "
        f"or leave out --local to fetch what is missing"
    )


def _note(path: Path, name: str, expected: str) -> None:
    # D: one's own files are allowed, but are never passed off as the published ones.
    if expected and path.name == name and checksum(path, expected) != expected:
        say(f"  note: {path} is not the published file (its checksum differs); used as it is")


def _joined(parts: Sequence[Path], path: Path) -> Path:
    """Return the file made of `parts`, joined again only if one is newer."""
    newest = max(part.stat().st_mtime_ns for part in parts)
    size = sum(part.stat().st_size for part in parts)
    if path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) == (size, newest):
        return path
    say(f"  join {', '.join(part.name for part in parts)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path).open("wb") as whole:
        for part in parts:
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, whole, BLOCK)
    os.utime(beside(path), ns=(newest, newest))
    os.replace(beside(path), path)
    return path
