"""Folders that cannot be written, disks without room, and names that are unusual."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import random
import resource
import stat
import sys
from pathlib import Path
from typing import Callable

ODD_NAMES = (
    *("a b", "-x", "--help", "a;b", "a:b", "a=b", "%s%n", "{a}", "*", "$(touch x)", "`touch x`"),
    *("a\nb", "\x1b[2J", "ä漢字🙂", "\u202e", "'\"", "\\", "\udcff", "#", "~", "x" * 200),
)
PAGE = 4096
MESSAGE = 4  # pages for an error message, where the limit is that of any file
ROOM = 1 << 20  # bytes of the small file system beyond the files of the command
# of mount(2), unshare(2) and umount2(2)
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 16384, 1 << 18
NEW_MOUNTS, DETACH = 0x00020000, 2

_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _mount(source: str, target: Path, kind: str, flags: int, options: str = "") -> None:
    words = (source.encode(), os.fsencode(target), kind.encode())
    _call("mount", *words, ctypes.c_ulong(flags), options.encode())


@functools.cache
def can_mount() -> bool:
    """Return whether this process can mount; its mounts are then its own, and end with it.

    Without the right, permissions stand in for a read-only mount and a limit for a full disk.
    """
    try:
        _call("unshare", NEW_MOUNTS)
        _mount("none", Path("/"), "", RECURSIVE | PRIVATE)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        print(
            "!! NO MOUNTS: not root: permissions and RLIMIT_FSIZE stand in for a read-only and a "
            "full file system",
            file=sys.stderr,
        )
        return False
    return True


def unmount(folder: Path) -> None:
    """Undo a mount of this module."""
    _call("umount2", os.fsencode(folder), DETACH)


def make_read_only(folder: Path) -> Callable[[], None]:
    """Make a folder read-only; return how to undo it."""
    if can_mount():
        _mount(str(folder), folder, "", BIND)
        _mount("none", folder, "", REMOUNT | BIND | READ_ONLY)
        return lambda: unmount(folder)
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*")) if path.exists()}
    for path, mode in modes.items():
        path.chmod(mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))

    def undo() -> None:
        for path, mode in modes.items():
            path.chmod(mode)

    return undo


def mount_small(folder: Path, template: Path) -> Callable[[], None]:
    """Mount a small file system at a folder, if possible; return how to undo it.

    Args:
        folder: an empty folder.
        template: what the file system must have room for.
    """
    if not can_mount():
        return lambda: None
    size = sum(PAGE + path.stat().st_size for path in template.rglob("*"))
    _mount("tmpfs", folder, "tmpfs", 0, f"size={size + ROOM}")
    return lambda: unmount(folder)


def fill(folder: Path, chance: random.Random) -> Callable[[], None]:
    """Leave a few pages of room where `mount_small` has mounted; return what a child must call."""
    pages = chance.choice((0, 0, 1, 2, chance.randrange(64)))
    if not can_mount():
        size = (pages + MESSAGE) * PAGE
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    free = os.statvfs(folder)
    with open(folder / "ballast", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, (free.f_bavail - pages) * free.f_bsize))
    return lambda: None
