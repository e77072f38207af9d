"""Checksums of files, kept on disk so that an unchanged file is read once."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from capsnmt import records
from capsnmt.files import hexdigest

NAME = ".checksums.json"


def algorithm_of(checksum: str) -> str:
    """Return the hash algorithm of a checksum: ``md5`` for ``md5:...``, else ``sha256``."""
    return "md5" if checksum.startswith("md5:") else "sha256"


def has_checksum(path: Path, expected: str) -> bool:
    """Return whether a file has the checksum ``expected``: a SHA-256, or ``md5:`` and an MD5."""
    return hexdigest(path, algorithm_of(expected)) == expected.removeprefix("md5:")


def files_below(folder: Path) -> list[Path]:
    """Return all files below ``folder``, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


class Checksums:
    """The checksums of the files that a preparation or a run reads and writes.

    ``.checksums.json`` stores each checksum with the file's size, times and inode; a file whose
    status is unchanged is not read again. It is a cache: records that must be the same after every
    run, such as ``manifest.json``, hold none of it, and a lost cache costs one more reading.

    Args:
        folder: the output folder of the preparation or run.
        trust: whether checksums on disk are used; if not, every file is read again.
    """

    def __init__(self, folder: Path, trust: bool = True) -> None:
        self.folder = folder
        self._stored: dict[str, dict[str, Any]] = _load(folder / NAME) if trust else {}
        self._changed = not trust

    def of(self, path: Path, algorithm: str = "sha256") -> str:
        """Return the checksum of a file, or of a folder's names and contents, in hexadecimal."""
        if path.is_dir():
            contents = {str(file.relative_to(path)): self.of(file) for file in files_below(path)}
            return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
        status = path.stat()
        # The time of the last status change also reveals a content with a restored date.
        now = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        stored = self._stored.get(self._key(path), {})
        if stored.get("status") != now:
            stored = self._stored[self._key(path)] = {"status": now}
        if algorithm not in stored:
            stored[algorithm] = hexdigest(path, algorithm)
            self._changed = True
        return str(stored[algorithm])

    def match(self, path: Path, expected: str) -> bool:
        """Return whether a file has the checksum ``expected``, as `has_checksum` does."""
        return self.of(path, algorithm_of(expected)) == expected.removeprefix("md5:")

    def save(self) -> None:
        """Write the checksums of the files that still exist, if any is new."""
        if self._changed:
            kept = {key: value for key, value in self._stored.items() if self._path(key).exists()}
            records.write(self.folder / NAME, kept)
            self._changed = False

    def _key(self, path: Path) -> str:
        inside = path.is_relative_to(self.folder)
        return str(path.relative_to(self.folder) if inside else path.absolute())

    def _path(self, key: str) -> Path:
        return self.folder / key  # an absolute key replaces the folder


def _load(path: Path) -> dict[str, dict[str, Any]]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(stored, dict):
        return {}
    return {key: value for key, value in stored.items() if isinstance(value, dict)}
