"""The cache of checksums reads unchanged files once, and detects every change."""

from __future__ import annotations

import hashlib
import os

import pytest

from capsnmt.checksums import NAME, Checksums, has_checksum

CONTENT = b"one\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(CONTENT)
    checksums = Checksums(tmp_path)
    checksums.of(path)
    checksums.save()
    return path


def test_both_algorithms_are_those_of_hashlib(path):
    md5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    for expected in (hashlib.sha256(CONTENT).hexdigest(), md5):
        assert has_checksum(path, expected)
        assert Checksums(path.parent).match(path, expected)
        assert not Checksums(path.parent).match(path, expected[:-1] + "x")


def test_an_unchanged_file_is_not_read_unless_the_cache_is_not_trusted(path, monkeypatch):
    monkeypatch.setattr("capsnmt.checksums.hexdigest", lambda *_: "read")
    assert Checksums(path.parent).of(path) == hashlib.sha256(CONTENT).hexdigest()
    assert Checksums(path.parent, trust=False).of(path) == "read"


def test_a_change_of_equal_length_with_the_old_date_is_detected(path):
    before = path.stat()
    path.write_bytes(b"two\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Checksums(path.parent).of(path) == hashlib.sha256(b"two\n").hexdigest()


@pytest.mark.parametrize("content", ["", "[]", '{"text": 3}', '{"text": {"status": 1}}'])
def test_a_damaged_cache_is_ignored(path, content):
    (path.parent / NAME).write_text(content)
    assert Checksums(path.parent).of(path) == hashlib.sha256(CONTENT).hexdigest()


def test_missing_files_are_dropped_from_the_cache(path):
    path.rename(path.with_name("other"))
    checksums = Checksums(path.parent)
    checksums.of(path.with_name("other"))
    checksums.save()
    assert '"text"' not in (path.parent / NAME).read_text()
