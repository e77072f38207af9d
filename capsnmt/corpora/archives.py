"""Archives: copy their text members to files with names of our own, without trusting them."""

from __future__ import annotations

import bz2
import difflib
import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, Callable, Dict, Iterator, List, Sequence, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.files import BLOCK

INSIDE = "!/"  # OUTER!/INNER is the member INNER of the archive that is the member OUTER
ZIP = b"PK\x03\x04"
COMPRESSIONS: Dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
DAMAGES = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,  # zipfile: a compression it does not know
    RuntimeError,  # zipfile: a password is needed
)


@dataclass(frozen=True)
class Text:
    """A file of text.

    Attributes:
        path: the file.
        name: what errors call it, such as ``ARCHIVE!/MEMBER``; a name in ``.gz`` is compressed.
    """

    path: Path
    name: str


def matches(name: str, pattern: str) -> bool:
    """Return whether a member's name matches a pattern with shell wildcards.

    If the pattern has no ``/``, only the last part of the name is compared.

    >>> matches("training/europarl-v7.de-en.de", "europarl-v7.de-en.*")
    True
    >>> matches("a/b.de", "b/b.de")
    False
    """
    return fnmatchcase(name if "/" in pattern else PurePosixPath(name).name, pattern)


@contextmanager
def _damage_is_one_line(name: object) -> Iterator[None]:
    try:
        yield
    except (*DAMAGES, OSError) as error:
        if getattr(error, "errno", None) is not None:  # of the file system, such as a full disk
            raise
        raise ConfigurationError(f"{name}: a damaged archive ({error}): fetch it again") from None


def _content(stream: IO[bytes]) -> Any:
    """Return the stream without its compression, by its first bytes."""
    start = stream.read(6)
    stream.seek(0)
    found = [opener for magic, opener in COMPRESSIONS.items() if start.startswith(magic)]
    return found[0](stream, "rb") if found else stream


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip or a tar, by its content; a damaged one may count as none."""
    with path.open("rb") as stream:
        if stream.read(4) == ZIP:
            return True
        stream.seek(0)
        try:
            return bool(_content(stream).read(262)[257:] == b"ustar")
        except (*DAMAGES, OSError):
            return False


def _members(stream: IO[bytes]) -> Iterator[Tuple[str, Callable[[], Any]]]:
    """Yield name and opener of every file in an open archive, in its order.

    A tar is read once, from beginning to end, so that any damage is found.
    """
    if stream.read(4) == ZIP:
        with zipfile.ZipFile(stream) as opened:
            for entry in opened.infolist():
                if not entry.is_dir():
                    yield entry.filename, partial(opened.open, entry)
        return
    stream.seek(0)
    content = _content(stream)
    # tarfile accepts a compressed file that ends early, between two members.
    with tarfile.open(fileobj=content, mode="r|", bufsize=BLOCK) as tar:
        for member in tar:
            if member.isfile():  # links and devices are not data
                yield member.name, partial(tar.extractfile, member)
    _drain(content)


def copy_texts(
    path: Path, name: str, patterns: Sequence[str], folder: Path
) -> Dict[str, List[Text]]:
    """Copy members of an archive into ``folder``, which is created, and return them by pattern.

    Args:
        path: the archive, or a plain file.
        name: its name in the recipe; if that is the only pattern, a plain file is returned.
        patterns: of the members, see `matches`; ``OUTER!/INNER`` selects ``INNER`` in the archive
            that is the member ``OUTER``.
        folder: the copies have names of our own, so that no member's name can lead out of it.
    """
    if list(patterns) == [name] and not is_archive(path):
        return {name: [Text(path, str(path))]}
    folder.mkdir(parents=True)
    with path.open("rb") as stream:
        return _copy_texts(path, stream, patterns, folder)


def _copy_texts(
    archive: Path, stream: IO[bytes], patterns: Sequence[str], folder: Path
) -> Dict[str, List[Text]]:
    copies: Dict[str, Path] = {}
    seen: List[str] = []
    texts: Dict[str, List[Text]] = {}
    outer = {pattern: pattern.partition(INSIDE)[0] for pattern in patterns}
    with _damage_is_one_line(archive):
        for name, opener in _members(stream):
            clean = str(PurePosixPath(name))
            seen.append(clean)
            if not any(matches(clean, pattern) for pattern in outer.values()):
                continue
            if clean in copies:
                raise ConfigurationError(
                    f"{archive}: has member {clean!r} twice, and nothing says which is right: "
                    f"fetch it again, or pack it again"
                )
            copies[clean] = folder / str(len(copies))
            with opener() as content, copies[clean].open("wb") as written:
                shutil.copyfileobj(content, written, BLOCK)
    for pattern, first in outer.items():
        found = sorted(name for name in copies if matches(name, first))
        if not found:
            similar = difflib.get_close_matches(first, seen, n=3, cutoff=0) or ["nothing"]
            raise ConfigurationError(
                f"{archive}: has no member {first}, but {', '.join(similar)} and "
                f"{max(0, len(seen) - len(similar))} more: it is not the recipe's archive or "
                f"version"
            )
        texts[pattern] = [Text(copies[name], f"{archive}{INSIDE}{name}") for name in found]
    for name, copy in copies.items():
        inner = [each for each in patterns if INSIDE in each and matches(name, outer[each])]
        if inner:
            rest = [pattern.partition(INSIDE)[2] for pattern in inner]
            nested = folder / f"{copy.name}.members"
            nested.mkdir()
            with copy.open("rb") as stream:
                made = _copy_texts(archive / name, stream, rest, nested)
            texts.update(zip(inner, (made[pattern] for pattern in rest)))
    return texts


def check_complete(path: Path) -> None:
    """Read an archive or a gzip file to its end; check that any other file is not a web page."""
    with path.open("rb") as stream, _damage_is_one_line(path):
        if stream.read(512).lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise ConfigurationError(f"{path}: a web page, not {path.name}")
        stream.seek(0)
        if not is_archive(path):
            _drain(_content(stream))
            return
        for _, opener in _members(stream):
            with opener() as content:
                _drain(content)


def _drain(stream: Any) -> None:
    while stream.read(BLOCK):
        pass
