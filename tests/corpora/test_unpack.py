"""Archives of the papers' corpora, and damaged ones."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.archive import check_complete, unpack
from tests.corpora.conftest import tree
from tests.corpora.miniatures import tgz, zipped

MEMBERS = {"corpus/a.en": b"one\n" * 9000, "corpus/a.de": b"eins\n" * 9000, "corpus/b.fr": b"un\n"}


def _tar(members):
    return gzip.decompress(tgz(members))


def _unpack(tmp_path, content, patterns, name="a.tgz"):
    (tmp_path / name).write_bytes(content)
    unpack(tmp_path / name, patterns, tmp_path / "out")
    return tree(tmp_path / "out")


@pytest.mark.parametrize("pack", [tgz, zipped, _tar])
@pytest.mark.parametrize("patterns", [["a.*"], ["corpus/a.en", "corpus/a.de"], ["*/a.??"]])
def test_only_what_is_asked_for_is_unpacked(tmp_path, pack, patterns):
    made = _unpack(tmp_path, pack(MEMBERS), patterns)
    assert made == {name: MEMBERS[name] for name in ("corpus/a.en", "corpus/a.de")}


@pytest.mark.parametrize("outer", [tgz, zipped])
@pytest.mark.parametrize("inner", [tgz, zipped])
def test_archives_in_archives(tmp_path, outer, inner):
    content = outer({"2014/es-en.tgz": inner(MEMBERS), "2014/en-es.tgz": inner({"a.en": b"no"})})
    made = _unpack(tmp_path, content, ["2014/es-en.tgz!/a.en", "2014/es-en.tgz!/b.fr"])
    assert made == {
        f"2014/es-en.tgz/{name}": MEMBERS[name] for name in ("corpus/a.en", "corpus/b.fr")
    }


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["a.ro"], r"has no member a\.ro, but .*corpus/a\.en.* and 0 more"),
        (["corpus/a.en!/x"], "a damaged archive"),
    ],
)
def test_another_archive_than_the_recipes_is_one_line(tmp_path, patterns, message):
    with pytest.raises(ConfigurationError, match=message) as error:
        _unpack(tmp_path, tgz(MEMBERS), patterns)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("pack", [tgz, zipped])
def test_a_member_that_occurs_twice_is_refused_if_it_is_asked_for(tmp_path, pack):
    content = pack({**MEMBERS, "./corpus//a.en": b"other\n"})
    with pytest.raises(ConfigurationError, match=r"has member 'corpus/a\.en' twice"):
        _unpack(tmp_path, content, ["a.en"])
    (tmp_path / "out").rename(tmp_path / "before")
    assert [*_unpack(tmp_path, content, ["b.fr"])] == ["corpus/b.fr"]


def _evil(name, kind=tarfile.REGTYPE):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/hostname"
        tar.addfile(member, io.BytesIO())
    return stream.getvalue()


@pytest.mark.parametrize("name", ["../a.en", "/tmp/a.en", "x/../../a.en"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_path_outside_the_folder_is_refused_in_any_depth(tmp_path, name, nested):
    content = tgz({"in.tgz": _evil(name)}) if nested else _evil(name)
    with pytest.raises(ConfigurationError, match="lies outside the archive's folder"):
        _unpack(tmp_path, content, ["in.tgz!/a.en" if nested else "a.en"])
    assert not [path for path in tmp_path.parent.rglob("a.en") if tmp_path in path.parents]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_not_members(tmp_path, kind):
    with pytest.raises(ConfigurationError, match=r"has no member a\.en, but nothing"):
        _unpack(tmp_path, _evil("a.en", kind), ["a.en"])


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("pack", [tgz, zipped])
def test_a_truncated_archive_is_detected_wherever_it_was_cut(tmp_path, pack, share):
    content = pack(MEMBERS)
    content = content[: int(len(content) * share)]
    with pytest.raises(ConfigurationError, match="a damaged archive"):
        _unpack(tmp_path, content, ["b.fr"])
    with pytest.raises(ConfigurationError, match="a damaged archive"):
        check_complete(tmp_path / "a.tgz")


def test_a_tar_cut_between_two_members_is_detected_by_its_gzip(tmp_path):
    # tarfile alone would accept the remaining part as complete.
    complete = _tar(MEMBERS)
    second = complete.index(b"corpus/a.de")
    compressor = gzip.compress(complete[:second])[:-8]
    with pytest.raises(ConfigurationError, match="a damaged archive"):
        _unpack(tmp_path, compressor, ["a.en"])


def test_a_flipped_bit_is_detected_by_a_checksum(tmp_path):
    content = bytearray(zipped(MEMBERS))
    content[60] ^= 1
    with pytest.raises(ConfigurationError, match="a damaged archive"):
        _unpack(tmp_path, bytes(content), ["a.en"])


@pytest.mark.parametrize("content", [b"", b"text\n", b"<html>", b"PK\x03\x04garbage"])
def test_a_file_that_is_not_an_archive_is_one_line(tmp_path, content):
    with pytest.raises(ConfigurationError, match="a damaged archive") as error:
        _unpack(tmp_path, content, ["a.en"])
    assert "\n" not in str(error.value)
