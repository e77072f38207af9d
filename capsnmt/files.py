"""Files that are complete or absent, their checksums, locks, and the files of the project."""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Iterator, List, Mapping, Optional, TextIO

import capsnmt
from capsnmt.cli import ConfigurationError, shown

BLOCK = 1 << 20  # bytes read at a time
# **D**: files are identified by their content, so that making them again, copying or moving them
# changes nothing. The checksum of one above this size, such as a checkpoint, is remembered: it is
# not read again while its size and time stay.
REMEMBERED_BYTES = 1 << 24
LONGEST_NAME = 200  # bytes; file systems allow 255, and suffixes are added
PACKAGE = Path(capsnmt.__file__).resolve().parent
# Where a checkout keeps what a wheel has inside the package (setup.py maps them).
IN_CHECKOUT = {"configs": "configs", "recipes": "data_prep/recipes", "trained": "results"}


def temporary_path(path: Path) -> Path:
    """Return where a file is written until it is complete."""
    return path.with_name(path.name + ".part")


def check_file_name(name: str, where: str) -> None:
    """Raise unless ``name`` can be the name of a file or folder, and one line of a script.

    ``where`` is the flag or key that gives it.
    """
    fits = name.isprintable() and "/" not in name and len(name.encode()) <= LONGEST_NAME
    if not fits or not name.strip() or name.startswith((".", "-")):
        raise ConfigurationError(
            f"{where}: {shown(name)} cannot be the name of a folder; give up to {LONGEST_NAME} "
            f"printable characters without a slash, a dot or hyphen not first"
        )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path, which replaces ``path`` if the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        with naming(path):
            yield temporary
            if temporary.is_dir() and path.is_dir():
                remove(path)  # one call cannot replace a folder
            os.replace(temporary, path)
    finally:
        remove(temporary)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the file system name a file; that of a full disk does not by itself."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def atomic_writer(path: Path) -> Iterator[TextIO]:
    """Open a text file that replaces ``path`` if the block ends without an error."""
    with (
        replacing(path) as temporary,
        open(temporary, "w", encoding="utf-8", errors="surrogateescape") as file,
    ):
        yield file


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write files under temporary names; when all are written, rename them in their order."""
    with ExitStack() as stack:
        for path, content in reversed(list(contents.items())):  # the stack ends with the first
            stack.enter_context(replacing(path)).write_bytes(content)


def remove(path: Path) -> None:
    """Remove a file, a folder or a link if it exists; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def hexdigest(path: Path, algorithm: str, opener: Callable[..., Any] = open) -> str:
    """Return the checksum of what ``opener`` reads in hexadecimal, by any algorithm of hashlib."""
    digest = hashlib.new(algorithm)
    with opener(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    return hexdigest(path, "sha256")


def signature(path: Path, known: str = "") -> str:
    """Return the checksum of a file; before that of a large one, its size and time.

    ``known`` is its recorded signature, which is returned if size and time are those of the file.
    """
    if not path.exists():
        return ""
    status = path.stat()
    if status.st_size <= REMEMBERED_BYTES:
        return sha256(path)
    stamp = f"{status.st_size} bytes at {status.st_mtime_ns}: "
    return known if known.startswith(stamp) else stamp + sha256(path)


def content_of(signature: str) -> str:
    """Return the part of a signature that says what is in the file."""
    return signature.rpartition(": ")[2]


def plain_or_gzipped(path: Path) -> Path:
    """Return ``path``, or ``path.gz`` if only that exists."""
    zipped = path.with_name(path.name + ".gz")
    return zipped if zipped.is_file() and not path.is_file() else path


@contextmanager
def locked(path: Path, waiting: str, say: Callable[[str], None] = print) -> Iterator[int]:
    """Hold the lock ``path``; child processes that inherit the descriptor hold it as well.

    While another process holds it, ``waiting`` is said once. The umask decides whose it may be.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            fault = f"{error.strerror}: choose a folder on a file system that has locks"
            raise OSError(error.errno, fault, str(path)) from None
        yield descriptor
    finally:
        os.close(descriptor)


def without_folders(value: Any) -> Any:
    """Return a value whose absolute paths have lost their folders, those of this machine."""
    if isinstance(value, argparse.Namespace):
        return argparse.Namespace(**without_folders(vars(value)))
    if isinstance(value, dict):
        return {key: without_folders(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(each) for each in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def bundled_folder(kind: str) -> Path:
    """Return a folder of `IN_CHECKOUT`, in the package or next to it."""
    installed = PACKAGE / kind
    return installed if installed.is_dir() else PACKAGE.parent / IN_CHECKOUT[kind]


def bundled_names(kind: str) -> List[str]:
    """Return the names of the YAML files directly in a folder of the project, sorted."""
    return sorted(path.stem for path in bundled_folder(kind).glob("*.yaml"))


# the distributions that bring a module fairseq
FAIRSEQS = ("ve-fairseq", "fairseq-fixed", "fairseq")


def installed_version(distribution: str) -> Optional[str]:
    """Return the version of a distribution; ``None`` if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def own_version() -> str:
    """Return our version, with the commit if the package is that of a git checkout."""
    # not that of a project in whose environment it lies, nor the one that GIT_DIR names in a hook
    command, folder = ["git", "--git-dir=.git", "--work-tree=.", "describe"], PACKAGE.parent
    command += ["--always", "--dirty", "--abbrev=12"]
    try:
        described = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    except (OSError, subprocess.CalledProcessError):
        return capsnmt.__version__
    return f"{capsnmt.__version__} (commit {described.stdout.strip()})"
