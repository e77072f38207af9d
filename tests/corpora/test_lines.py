from __future__ import annotations

import gzip

import pytest

from capsnmt.corpora.lines import read_lines
from capsnmt.errors import ConfigurationError
from capsnmt.files import publish


def test_only_line_feeds_end_a_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\r\ntwo\u2028still\x85two\rtoo\n\nfour".encode())
    assert list(read_lines(path)) == ["one", "two still two too", "", "four"]


def test_gzipped_and_plain_text_give_the_same_lines(tmp_path):
    plain, packed = tmp_path / "a", tmp_path / "a.gz"
    plain.write_text("ä\nb\n", encoding="utf-8")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(read_lines(packed)) == list(read_lines(plain)) == ["ä", "b"]


def test_text_in_another_encoding_is_refused_with_its_line(tmp_path):
    path = tmp_path / "latin1.de"
    path.write_bytes("gut\nschön\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"latin1\.de, line 2: not UTF-8"):
        list(read_lines(path))


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"plain text", lambda b: b[:40]])
def test_damaged_gzip_is_refused(tmp_path, damage):
    path = tmp_path / "train.en.gz"
    content = b"".join(b"line %d\n" % number for number in range(500))
    path.write_bytes(damage(gzip.compress(content)))
    with pytest.raises(ConfigurationError, match=r"train\.en\.gz: not a complete gzip file"):
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
