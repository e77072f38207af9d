"""Files inside wheels and source distributions, read without unpacking or running anything."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from data_prep.errors import PreparationError

SUFFIXES = (".whl", ".zip", ".tar.gz", ".tgz")
MAX_BYTES = 64 << 20  # of one member: more is no text but an attack or an accident


def _check(archive: Path, name: str, size: int) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]):
        raise PreparationError(
            f"{archive}: member {name!r} lies outside the archive's folder: "
            f"the archive is not to be trusted, remove it"
        )
    if size > MAX_BYTES:
        raise PreparationError(
            f"{archive}: member {name!r} has {size:,} bytes, at most {MAX_BYTES:,} are read"
        )


def _zip_members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            _check(path, member.filename, member.file_size if wanted(member.filename) else 0)
            if wanted(member.filename):
                yield member.filename, archive.read(member)


def _tar_members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            _check(path, member.name, member.size if wanted(member.name) else 0)
            # Links and devices are no data, wherever they point.
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None and wanted(member.name):
                yield member.name, stream.read()


def members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Return the contents of the files in an archive whose names are `wanted`, sorted by name.

    Raises:
        PreparationError: the archive is damaged or of another format, or any member, wanted or
            not, would lie outside the archive's folder.
    """
    if not path.name.endswith(SUFFIXES):
        raise PreparationError(f"{path}: not an archive: {', '.join(SUFFIXES)} are read")
    read = _zip_members if path.suffix in {".whl", ".zip"} else _tar_members
    try:
        return dict(sorted(read(path, wanted)))
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise PreparationError(f"{path}: a damaged archive ({error}): fetch it again") from None
