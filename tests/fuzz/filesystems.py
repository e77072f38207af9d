"""Folders that cannot be written, disks without room, and names that are unusual."""

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
# of mount(2), unshare(2) and umount2(2)
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 16384, 1 << 18
NEW_MOUNTS, DETACH = 0x00020000, 2

_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: object) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _mount(folder: Path, flags: int) -> None:
    name = os.fsencode(folder)
    _call("mount", name, name, None, ctypes.c_ulong(flags), None)


@functools.cache
def can_mount() -> bool:
    """Return whether this process can mount; its mounts are then its own, and end with it."""
    try:
        _call("unshare", NEW_MOUNTS)
        _mount(Path("/"), RECURSIVE | PRIVATE)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        print("!! NO MOUNTS: permissions stand in for a read-only file system", file=sys.stderr)
        return False
    return True


def make_read_only(folder: Path) -> Callable[[], None]:
    """Make a folder read-only; return how to undo it."""
    if can_mount():  # root may write to any folder
        _mount(folder, BIND)
        _mount(folder, REMOUNT | BIND | READ_ONLY)
        return lambda: _call("umount2", os.fsencode(folder), DETACH)
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*")) if path.exists()}
    for path, mode in modes.items():
        path.chmod(mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    return lambda: [path.chmod(mode) for path, mode in modes.items()] and None


def fill_disk(chance: random.Random) -> None:
    """Leave every file of this process a few pages: a longer one is as on a full disk."""
    pages = chance.choice((0, 0, 1, 2, chance.randrange(64)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (pages * PAGE, pages * PAGE))
