"""Folders that cannot be written, disks without room, and names that are unusual."""

import ctypes
import functools
import random
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import Callable

ODD_NAMES = (
    *("a b", "-x", "--help", "a;b", "a:b", "a=b", "%s%n", "{a}", "*", "$(touch x)", "`touch x`"),
    *("a\nb", "\x1b[2J", "ä漢字🙂", "\u202e", "'\"", "\\", "\udcff", "#", "~", "x" * 200),
)
PAGE = 4096
NEW_MOUNTS = 0x00020000  # of unshare(2), which Python has since 3.12


@functools.cache
def can_mount() -> bool:
    """Return whether this process can mount; its mounts are then its own, and end with it."""
    if ctypes.CDLL(None).unshare(NEW_MOUNTS) == 0:
        private = ["mount", "--make-rprivate", "/"]
        if not subprocess.run(private, stderr=subprocess.DEVNULL, check=False).returncode:
            return True
    print("!! NO MOUNTS: permissions stand in for a read-only file system", file=sys.stderr)
    return False


def make_read_only(folder: Path) -> Callable[[], object]:
    """Make a folder read-only; return how to undo it."""
    if can_mount():  # root may write to any folder
        for words in (["--bind", folder, folder], ["-o", "remount,bind,ro", folder]):
            subprocess.run(["mount", *words], check=True)
        return lambda: subprocess.run(["umount", "--lazy", folder], check=True)
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*")) if path.exists()}
    for path, mode in modes.items():
        path.chmod(mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    return lambda: [path.chmod(mode) for path, mode in modes.items()]


def fill_disk(chance: random.Random) -> None:
    """Leave every file of this process a few pages: a longer one is as on a full disk."""
    pages = chance.choice((0, 0, 1, 2, chance.randrange(64)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (pages * PAGE, pages * PAGE))
