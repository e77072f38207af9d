"""Archives: copy their text members to files with names of our own, without trusting them."""

import gzip
import io
import shutil
import tarfile
import zipfile
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.files import BLOCK

INSIDE = "!/"  # OUTER!/INNER is the member INNER of the archive that is the member OUTER
ZIP, GZIP, AR = b"PK\x03\x04", b"\x1f\x8b", b"!<arch>\n"


class Text(NamedTuple):
    """A file of text, and what errors call it; if that ends in ``.gz``, it is compressed."""

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
    except Exception as error:  # zipfile, tarfile and zlib have many of their own
        if getattr(error, "errno", None) is not None:  # of the file system, such as a full disk
            raise
        problem = " ".join(str(error).split())
        raise ConfigurationError(f"{name}: a damaged archive ({problem}); fetch it again") from None


def _starts_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(magic)) == magic


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip, an ar or a tar, by its content; a damaged one may not be."""
    try:
        return any(_starts_with(path, magic) for magic in (ZIP, AR)) or tarfile.is_tarfile(path)
    except Exception:  # of its compression
        return False


def _members(path: Path) -> Iterator[Tuple[str, Callable[[], Any]]]:
    """Yield name and opener of every file in an archive, in its order."""
    if _starts_with(path, ZIP):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    yield str(PurePosixPath(entry.filename)), partial(archive.open, entry)
        return
    if _starts_with(path, AR):
        yield from _members_of_ar(path)
        return
    with tarfile.open(path) as tar:
        for member in tar:
            # links and devices are not data, and a file with holes has any size
            if member.isfile() and not member.issparse():
                yield str(PurePosixPath(member.name)), partial(tar.extractfile, member)
        # tarfile accepts a compressed file that ends early, between two members
        _drain(tar.fileobj)


def _members_of_ar(path: Path) -> Iterator[Tuple[str, Callable[[], Any]]]:
    """Yield the members of a package of Debian, ar(5); each is in memory while it is read."""
    with path.open("rb") as stream:
        stream.seek(len(AR))
        while header := stream.read(60):
            size = int(header[48:58])
            content = stream.read(size)
            if header[58:] != b"`\n" or len(content) != size:
                raise ValueError(f"it is cut or broken before byte {stream.tell():,}")
            stream.seek(len(content) % 2, 1)  # padding
            yield header[:16].decode("ascii").rstrip(" /"), partial(io.BytesIO, content)


def copy_texts(archive: Text, patterns: Sequence[str], folder: Path) -> Dict[str, List[Text]]:
    """Copy members of an archive into a new folder, in one pass, and return them by pattern.

    The copies have names of our own, so that no member's name can lead out of the folder. See
    `matches`; ``OUTER!/INNER`` selects ``INNER`` in every archive that is a member ``OUTER``.
    """
    folder.mkdir(parents=True)
    inner: Dict[str, List[str]] = {}
    for pattern in patterns:
        outer, _, rest = pattern.partition(INSIDE)
        inner.setdefault(outer, []).append(rest)
    copies: Dict[str, Text] = {}
    with _damage_is_one_line(archive.name):
        for name, opener in _members(archive.path):
            if not any(matches(name, outer) for outer in inner):
                continue
            copy = Text(folder / str(len(copies)), f"{archive.name}{INSIDE}{name}")
            copy = copies.setdefault(name, copy)  # of two members with one name the last counts
            with opener() as content, copy.path.open("wb") as written:
                shutil.copyfileobj(content, written, BLOCK)
    texts: Dict[str, List[Text]] = {}
    for outer, rests in inner.items():
        found = [copies[name] for name in sorted(copies) if matches(name, outer)]
        if not found:
            raise ConfigurationError(
                f"{archive.name} has no member {outer}; give the recipe's version of the archive"
            )
        nested = [rest for rest in rests if rest]
        for each in found if nested else []:
            made = copy_texts(each, nested, each.path.with_suffix(".members"))
            for rest in nested:
                texts.setdefault(f"{outer}{INSIDE}{rest}", []).extend(made[rest])
        if "" in rests:
            texts[outer] = found
    return texts


def check_complete(path: Path) -> None:
    """Read an archive or a gzip file to its end; check that any other file is not a web page."""
    with path.open("rb") as stream:
        if stream.read(512).lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise ConfigurationError(f"{path}: a web page")
    with _damage_is_one_line(path):
        if is_archive(path):
            for _, opener in _members(path):
                with opener() as content:
                    _drain(content)
        elif _starts_with(path, GZIP):
            with gzip.open(path) as content:
                _drain(content)


def _drain(stream: Any) -> None:
    while stream.read(BLOCK):
        pass
