"""Archives of the papers' corpora, hostile ones, and damaged ones."""

import gzip
import shutil
import tarfile
from itertools import product

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.archives import Text, check_complete, copy_texts
from tests.corpora.miniatures import ar, tar_of, tgz, zipped

MEMBERS = {"corpus/a.en": b"one\n" * 9000, "corpus/a.de": b"eins\n" * 9000, "corpus/b.fr": b"un\n"}


def _tar(members):
    return gzip.decompress(tgz(members))


def _copied(tmp_path, content, patterns):
    """The contents of the members by the name of each."""
    archive, folder = tmp_path / "a.tgz", tmp_path / "out"
    archive.write_bytes(content)
    texts = copy_texts(Text(archive, str(archive)), patterns, folder)
    assert all(folder in text.path.parents for found in texts.values() for text in found)
    return {
        text.name.replace(f"{archive}!/", ""): text.path.read_bytes()
        for found in texts.values()
        for text in found
    }


@pytest.mark.parametrize("pack", [tgz, zipped, _tar, ar])
@pytest.mark.parametrize("patterns", [["a.*"], ["corpus/a.en", "corpus/a.de"], ["*/a.??"]])
def test_only_what_is_asked_for_is_copied(tmp_path, pack, patterns):
    made = _copied(tmp_path, pack(MEMBERS), patterns)
    assert made == {name: MEMBERS[name] for name in ("corpus/a.en", "corpus/a.de")}
    assert len(list((tmp_path / "out").iterdir())) == 2
    inner = [f"2014/es-en.tgz!/{pattern}" for pattern in patterns]
    for outer in (tgz, zipped, ar):
        content = outer({"2014/es-en.tgz": pack(MEMBERS), "2014/en-es.tgz": pack({"a.en": b"no"})})
        (tmp_path / "out").rename(tmp_path / f"before {outer.__name__}")
        nested = _copied(tmp_path, content, inner)
        assert nested == {f"2014/es-en.tgz!/{name}": made[name] for name in made}


def test_every_archive_that_a_pattern_selects_is_read(tmp_path):
    members = {f"part-{number}.tgz": tgz({"a.en": b"%d\n" % number}) for number in (1, 2)}
    made = _copied(tmp_path, tgz(members), ["part-*.tgz!/a.en"])
    assert made == {"part-1.tgz!/a.en": b"1\n", "part-2.tgz!/a.en": b"2\n"}


@pytest.mark.parametrize("name", ["../a.en", "/tmp/a.en", "x/../../a.en"])
@pytest.mark.parametrize("nested", [False, True])
def test_no_name_of_a_member_leads_out_of_the_folder(tmp_path, name, nested):
    content = tgz({name: b""})
    content = tgz({"in.tgz": content}) if nested else content
    made = _copied(tmp_path, content, ["in.tgz!/a.en" if nested else "a.en"])
    assert list(made.values()) == [b""]
    assert not list(tmp_path.rglob("a.en"))


def test_of_two_members_with_one_name_the_last_counts_and_none_takes_the_place_of_another(tmp_path):
    content = tar_of(("a.de", b"alt"), ("a.de", b"neu"), ("a.en", b"new"))
    made = _copied(tmp_path, content, ["a.de", "a.en"])
    assert made == {"a.de": b"neu", "a.en": b"new"}


DAMAGED = {
    **{
        f"{pack.__name__} cut at {share}": content[: int(len(content) * share)]
        for pack, share in product((tgz, zipped, ar), (0.02, 0.5, 0.9, 0.99))
        for content in [pack(MEMBERS)]
    },
    # tarfile alone would accept the remaining part as complete
    "cut between two members": gzip.compress(_tar(MEMBERS).partition(b"corpus/a.de")[0])[:-8],
    "ar without a mark": ar({"a.en": b"one\n"}).replace(b"`", b"'"),
    "ar of a negative size": ar({"a.en": b"one\n"}).replace(b"4   ", b"-4  "),
    "zip": b"PK\x03\x04garbage",
    "text": b"text\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_archive_is_one_line_wherever_it_was_cut(tmp_path, name):
    with pytest.raises(ConfigurationError, match="a damaged archive"):
        _copied(tmp_path, DAMAGED[name], ["a.en"])
    if name not in ("text", "nothing"):  # they may be what they seem
        with pytest.raises(ConfigurationError, match="a damaged archive"):
            check_complete(tmp_path / "a.tgz")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_another_file_than_the_recipes_is_one_line(tmp_path, kind):
    """Links and devices are no members."""
    for content, pattern, message in (
        (tar_of(("a.en", b""), kind=kind), "a.en", r"has no member a\.en; give"),
        (tgz(MEMBERS), "a.ro", r"has no member a\.ro; give the recipe's version"),
        (tgz(MEMBERS), "corpus/a.en!/x", "a damaged archive"),
    ):
        with pytest.raises(ConfigurationError, match=f"^.*{message}.*$"):
            _copied(tmp_path, content, [pattern])
        shutil.rmtree(tmp_path / "out")
