"""Decoding reuses the memory of large tensors; the user's settings of malloc stay."""

from __future__ import annotations

import resource
import sys

import pytest
import torch

from capsnmt.models import kept_memory, transformer
from capsnmt.models.kept_memory import keep_freed_memory, tunes_malloc
from tests.support import build

LARGE = 2**24  # numbers: 64 MB, above the 32 MB from which malloc asks the system


def page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_the_memory_of_a_large_tensor_is_used_again() -> None:
    if not keep_freed_memory():
        pytest.skip("this process has its own settings of malloc, or another allocator")
    pages = 4 * LARGE // resource.getpagesize()
    torch.ones(LARGE)
    before = page_faults()
    torch.ones(LARGE)
    assert page_faults() - before < pages / 8


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_MMAP_THRESHOLD_", "1000000"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")],
)
def test_the_users_settings_stay(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GLIBC_TUNABLES", *(v for v in kept_memory.os.environ if "MALLOC" in v)):
        monkeypatch.delenv(variable, raising=False)
    assert not tunes_malloc()
    monkeypatch.setenv(name, value)
    assert tunes_malloc()
    assert not keep_freed_memory.__wrapped__()


def test_a_model_that_decodes_on_a_cpu_keeps_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(transformer, "keep_freed_memory", lambda: calls.append(True))
    model = build("capsnmt_transformer")
    assert not calls
    model.make_generation_fast_()
    assert calls
