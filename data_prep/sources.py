"""Source files: in the cache, or in a folder of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from data_prep.errors import PreparationError
from data_prep.files import sha256
from data_prep.progress import say


def check_names(files: Mapping[str, str]) -> None:
    """Raise a PreparationError unless every key of `files` names a file in the cache itself."""
    for name in files:
        if Path(name).name != name:
            raise PreparationError(f"{name!r}: a plain file name is needed, without folders")


def cached(path: Path, checksum: str, offline: bool) -> bool:
    """Return whether `path` is whole; if not, it is to be fetched.

    Raises:
        PreparationError: it is not, and `offline` is set.
    """
    if path.is_file() and sha256(path) == checksum:
        return True
    if offline:
        raise PreparationError(
            f"--offline: {path} is {'damaged' if path.exists() else 'missing'}: run once without "
            f"--offline, or give the folder that has {path.name} with --data"
        )
    return False


def local_files(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """Return where each of `files` (name -> SHA-256) lies in `folder`, gzipped or plain.

    Raises:
        PreparationError: one is missing.
    """
    found = {}
    for name, checksum in files.items():
        candidates = [folder / name]
        if name.endswith(".gz") and not name.endswith(".tar.gz"):
            candidates.append(folder / name[: -len(".gz")])
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            raise PreparationError(
                f"--data {folder}: {' or '.join(path.name for path in candidates)} is missing; "
                f"the folder must hold {', '.join(files)}"
            )
        # D: one's own files are allowed, but are never passed off as the published ones.
        if path.name == name and sha256(path) != checksum:
            say(f"  note: {path} is not the published file (its SHA-256 differs); used as it is")
        found[name] = path
    return found
