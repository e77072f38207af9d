"""Training and decoding reuse the memory of large tensors; the user's settings of malloc stay."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from typing import List

import pytest

from capsnmt.modules.kept_memory import set_malloc, tunes_malloc

# 64 MB each, above the 32 MB from which malloc asks the system. It pads a request to align it, so
# the place of a tensor settles only after some (nine have been seen).
PAGE_FAULTS_OF_LATER_TENSORS = """
import resource, torch
from capsnmt.modules.kept_memory import keep_freed_memory
assert keep_freed_memory("cpu")
faults = []
for _ in range(60):
    torch.ones(2**24)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[59] - faults[49])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
def test_the_memory_of_large_tensors_is_used_again() -> None:
    # A fresh process: after a failed allocation, malloc serves this thread from another arena.
    environment = {k: v for k, v in os.environ.items() if k not in settings_of_malloc()}
    done = subprocess.run(
        [sys.executable, "-c", PAGE_FAULTS_OF_LATER_TENSORS],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    pages = 10 * 4 * 2**24 // resource.getpagesize()  # of ten tensors
    assert int(done.stdout.splitlines()[-1]) < pages / 8


def settings_of_malloc() -> List[str]:
    return ["GLIBC_TUNABLES", *(name for name in os.environ if name.startswith("MALLOC_"))]


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_MMAP_THRESHOLD_", "1000000"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")],
)
def test_the_users_settings_stay(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in settings_of_malloc():
        monkeypatch.delenv(variable, raising=False)
    assert not tunes_malloc()
    monkeypatch.setenv(name, value)
    assert tunes_malloc()
    assert not set_malloc.__wrapped__()
