"""Archives: read or unpack their text members as a stream, without trusting them."""

from __future__ import annotations

import bz2
import difflib
import gzip
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from capsnmt.cli import ConfigurationError
from capsnmt.files import BLOCK

PACKAGES = (".whl", ".zip", ".tar.gz", ".tgz")
SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar")
MAX_BYTES = 64 << 20  # of one member of a package; a larger one is an attack or an accident
INSIDE = "!/"  # OUTER!/INNER is the member INNER of the archive that is the member OUTER
COMPRESSIONS: dict[bytes, Callable[..., Any]] = {
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


def is_archive(path: Path) -> bool:
    """Return whether a file is an archive, by its name."""
    return path.name.endswith(SUFFIXES)


@contextmanager
def _damage_is_one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except (*DAMAGES, gzip.BadGzipFile) as error:
        raise ConfigurationError(f"{path}: a damaged archive ({error}): fetch it again") from None
    except OSError as error:
        if error.errno is not None:  # of the file system, such as a full disk
            raise
        raise ConfigurationError(f"{path}: a damaged archive ({error}): fetch it again") from None


def _check(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]):
        raise ConfigurationError(
            f"{archive}: member {name!r} lies outside the archive's folder: "
            f"do not trust this archive, remove it"
        )


def _repeated(archive: Path, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{archive}: has member {name!r} twice, and nothing says which is right: fetch it "
        f"again, or pack it again"
    )


def _members(archive: Path, stream: IO[bytes]) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Yield name, bytes and an opener of every file in an open archive, in its order.

    A tar is read once, from beginning to end, so that any damage is found.
    """
    start = stream.read(6)
    stream.seek(0)
    if start.startswith(b"PK"):
        with zipfile.ZipFile(stream) as opened:
            for entry in opened.infolist():
                _check(archive, entry.filename)
                if not entry.is_dir():
                    yield entry.filename, entry.file_size, partial(opened.open, entry)
        return
    openers = [opener for magic, opener in COMPRESSIONS.items() if start.startswith(magic)]
    content = openers[0](stream, "rb") if openers else stream
    # tarfile accepts a compressed file that ends early, between two members.
    with tarfile.open(fileobj=content, mode="r|", bufsize=BLOCK) as tar:
        for member in tar:
            _check(archive, member.name)
            # Links and devices are not data.
            if member.isfile():
                yield member.name, member.size, partial(tar.extractfile, member)
    while content.read(BLOCK):
        pass


def members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Return the contents of the files in a package whose names are ``wanted``, sorted by name.

    Raises:
        ConfigurationError: the archive is damaged or of another format, or any member has a path
            outside the archive's folder.
    """
    if not path.name.endswith(PACKAGES):
        raise ConfigurationError(f"{path}: not an archive: {', '.join(PACKAGES)} are read")
    contents: dict[str, bytes] = {}
    with _damage_is_one_line(path), path.open("rb") as stream:
        for name, size, opener in _members(path, stream):
            if not wanted(name):
                continue
            if name in contents:
                raise _repeated(path, name)
            if size > MAX_BYTES:
                raise ConfigurationError(
                    f"{path}: member {name!r} has {size:,} bytes, at most {MAX_BYTES:,} are read"
                )
            with opener() as content:
                contents[name] = content.read()
    return dict(sorted(contents.items()))


def matches(name: str, pattern: str) -> bool:
    """Return whether a member's name matches a pattern.

    If the pattern has no ``/``, only the last part of the name is compared.

    >>> matches("training/europarl-v7.de-en.de", "europarl-v7.de-en.*")
    True
    >>> matches("a/b.de", "b/b.de")
    False
    """
    return fnmatchcase(name if "/" in pattern else PurePosixPath(name).name, pattern)


def unpack(path: Path, patterns: Sequence[str], folder: Path) -> None:
    """Write the members of an archive that match one of ``patterns`` to ``folder``.

    A pattern is a name with shell wildcards; see `matches`. ``OUTER!/INNER`` selects ``INNER`` in
    the archive that is the member ``OUTER``.

    Raises:
        ConfigurationError: the archive is damaged, a pattern matches nothing, a member that matches
            occurs twice, or any member has a path outside the folder.
    """
    folder.mkdir(parents=True)
    with _damage_is_one_line(path), path.open("rb") as stream:
        _unpack(path, stream, patterns, folder)


def _unpack(archive: Path, stream: IO[bytes], patterns: Sequence[str], folder: Path) -> None:
    names: list[str] = []
    found: set[str] = set()
    unpacked: set[str] = set()
    for name, _, opener in _members(archive, stream):
        clean = str(PurePosixPath(name))
        names.append(clean)
        hits = [pattern for pattern in patterns if matches(clean, pattern.split(INSIDE)[0])]
        if not hits:
            continue
        found.update(hits)
        if clean in unpacked:
            raise _repeated(archive, clean)
        unpacked.add(clean)
        inner = [pattern.split(INSIDE, 1)[1] for pattern in hits if INSIDE in pattern]
        path = folder / clean
        path.parent.mkdir(parents=True, exist_ok=True)
        with opener() as content:
            if inner:
                # A zip file is read from its end, which is impossible in a stream.
                with tempfile.TemporaryFile(dir=folder) as copy:
                    shutil.copyfileobj(content, copy, BLOCK)
                    copy.seek(0)
                    _unpack(archive / clean, copy, inner, path)
            else:
                with path.open("wb") as copy:
                    shutil.copyfileobj(content, copy, BLOCK)
    for pattern in patterns:
        if pattern not in found:
            similar = difflib.get_close_matches(pattern, names, n=3, cutoff=0) or ["nothing"]
            raise ConfigurationError(
                f"{archive}: has no member {pattern.split(INSIDE)[0]}, but {', '.join(similar)} "
                f"and {max(0, len(names) - len(similar))} more: it is not the recipe's archive or "
                f"version"
            )


def check_complete(path: Path) -> None:
    """Read an archive or a gzip file to its end; check that any other file is not a web page.

    Raises:
        ConfigurationError: it is damaged, or a web page that a server sent instead of the file.
    """
    with path.open("rb") as stream:
        start = stream.read(512).lstrip().lower()
        if start.startswith((b"<!doctype html", b"<html")):
            raise ConfigurationError(f"{path}: a web page, not {path.name}")
        stream.seek(0)
        with _damage_is_one_line(path):
            if is_archive(path):
                for _, _, opener in _members(path, stream):
                    if zipfile.is_zipfile(path):
                        with opener() as content:
                            while content.read(BLOCK):
                                pass
            elif path.suffix == ".gz":
                with gzip.open(stream) as content:
                    while content.read(BLOCK):
                        pass
