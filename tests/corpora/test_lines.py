from __future__ import annotations

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.lines import read_lines
from capsnmt.files import publish


def test_only_line_feeds_end_a_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\r\ntwo\u2028still\x85two\rtoo\n\nfour".encode())
    assert list(read_lines(path)) == ["one", "two still two too", "", "four"]


def test_a_stray_nul_is_a_space_and_utf_16_is_refused(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"one\0two\n" + b"a long line of text\n" * 20)
    assert next(read_lines(path)) == "one two"
    path.write_bytes("one two\n".encode("utf-16-le"))
    with pytest.raises(ConfigurationError, match="line 1: holds a NUL character"):
        list(read_lines(path))


def test_a_published_folder_replaces_all_of_the_old_one(tmp_path):
    old, part = tmp_path / "bin", tmp_path / "bin.part"
    old.mkdir()
    (old / "stale").touch()
    part.mkdir()
    (part / "fresh").touch()
    publish(part, old)
    assert [path.name for path in old.iterdir()] == ["fresh"]
    assert not part.exists()
