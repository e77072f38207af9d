from __future__ import annotations

import tarfile

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.archive import members
from tests.corpora.conftest import WRITERS


@pytest.mark.parametrize(("name", "write"), WRITERS)
@pytest.mark.parametrize(
    "evil", ["../evil.po", "/etc/evil.po", "a/../../evil", "..\\evil", "C:\\e"]
)
def test_an_archive_with_a_path_outside_its_folder_is_refused(tmp_path, name, write, evil):
    path = write(tmp_path / name, {"a/good.po": b"x", evil: b"x"})
    with pytest.raises(ConfigurationError, match=r"lies outside the archive's folder"):
        members(path, lambda member: member.endswith(".po"))


def test_links_in_an_archive_are_not_followed(tmp_path):
    path = tmp_path / "tool-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("messages.po")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    assert members(path, lambda name: True) == {}


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_an_oversized_member_is_refused_unread(tmp_path, monkeypatch, name, write):
    monkeypatch.setattr("capsnmt.corpora.archive.MAX_BYTES", 10)
    path = write(tmp_path / name, {"messages.po": b"x" * 11})
    with pytest.raises(ConfigurationError, match=r"messages.po' has 11 bytes, at most 10 are read"):
        members(path, lambda member: True)


@pytest.mark.parametrize(("name", "write"), WRITERS)
def test_a_damaged_archive_is_one_line(tmp_path, name, write):
    path = write(tmp_path / name, {"messages.po": bytes(range(256)) * 40})
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ConfigurationError, match="a damaged archive"):
        members(path, lambda member: True)
