"""Data that cannot be analysed are refused in one line."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from capsnmt.analysis.model import load_subset
from capsnmt.cli import ConfigurationError
from tests.support import TASK

MMAP, CACHED = b"MMIDIDX\x00\x00", b"TNTIDX\x00\x00"
SPOILT = {
    "empty": b"",
    "another format": b"PK\x03\x04" * 8,
    "cut": MMAP + struct.pack("<Q", 1),
    "of another version": CACHED + struct.pack("<Q", 7),
    "with an unknown type": CACHED + struct.pack("<QQQ", 1, 68719476749, 4),
}


@pytest.mark.parametrize("index", SPOILT.values(), ids=SPOILT)
def test_a_damaged_index_is_refused(index: bytes, tmp_path: Path) -> None:
    for language in ("en", "de"):
        (tmp_path / f"test.en-de.{language}.idx").write_bytes(index)
        (tmp_path / f"test.en-de.{language}.bin").write_bytes(b"\x04\x02")
    config = TranslationConfig(data=str(tmp_path), source_lang="en", target_lang="de")
    config.dataset_impl = None  # from the file, as by default on the command line
    task = TranslationTask(config, TASK.source_dictionary, TASK.target_dictionary)
    with pytest.raises(ConfigurationError, match=r"--subset test: .* or it is damaged"):
        load_subset(task, "test", tmp_path)
