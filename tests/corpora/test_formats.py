from __future__ import annotations

import gzip

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.blocks import aligned
from capsnmt.corpora.formats import LONGEST_SEGMENT, read_text


def _read(path, content, kind, encoding="utf-8", column=1):
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return list(read_text(path, kind, encoding, column))


def test_plain_text_may_be_latin_1_and_end_its_lines_as_dos_does(tmp_path):
    content = "schön\r\nStraße\r\n\r\nohne Ende"
    read = _read(tmp_path / "a", content, "plain", "latin-1")
    assert read == ["schön", "Straße", "", "ohne Ende"]


def test_latin_1_taken_for_utf_8_names_file_line_and_remedies(tmp_path):
    with pytest.raises(ConfigurationError) as error:
        _read(tmp_path / "a", "good\nschön\n".encode("latin-1"), "plain")
    assert f"{tmp_path / 'a'}, line 2: not UTF-8" in str(error.value)
    assert "name its encoding in the recipe" in str(error.value)


@pytest.mark.parametrize("separator", "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
def test_no_other_separator_ends_a_line_or_stays_in_it(tmp_path, separator):
    read = _read(tmp_path / "a", f"one{separator}line\nnext\n", "plain")
    assert read == ["one line", "next"]


def test_moses_escapes_become_characters(tmp_path):
    content = "Tom &amp; Ann &#124; &lt;b&gt; &apos;s &quot; &#91; x &#93;\n"
    assert _read(tmp_path / "a", content, "moses") == ["Tom & Ann | <b> 's \" [ x ]"]


@pytest.mark.parametrize("kind", ["sgm", "iwslt-xml"])
def test_segments_are_read_whatever_surrounds_them(tmp_path, kind):
    content = (
        '<srcset setid="x">\n<doc docid="1">\n<url>http://x</url>\n<title>no sentence</title>\n'
        '<hl><seg id="1"> One &amp; two </seg></hl>\r\n<p><seg id="2">over\n\ntwo lines</seg>'
        '<SEG id=3>A & B</SEG>\n<seg id="4"></seg>\n</p></doc></srcset>\n'
    )
    read = _read(tmp_path / "a", content, kind)
    assert read == ["One & two", "over two lines", "A & B", ""]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("just text\n", "no <seg> element"),
        ("", "no <seg> element"),
        ('<seg id="1">a</seg>\n<seg id="2">cut of', "segment 2 does not end"),
        (f"<seg>{'x' * LONGEST_SEGMENT}\n" * 3, "segment 1 does not end"),
    ],
)
def test_what_is_not_sgm_is_one_line(tmp_path, content, message):
    with pytest.raises(ConfigurationError, match=message):
        _read(tmp_path / "a", content, "sgm")


def test_talks_lose_the_lines_about_them_and_only_those(tmp_path):
    content = (
        "<url>http://x</url>\n<keywords>a, b</keywords>\n<speaker>S</speaker>\n<talkid>1</talkid>\n"
        "<title>T</title>\n<description>D</description>\n First one. \n2 < 3 & <b>bold</b>\n"
        "<translator href='x'>T</translator>\n<reviewer>R</reviewer>\n<urls are words>\nLast.\n"
    )
    read = _read(tmp_path / "a", content, "iwslt-tags")
    assert read == ["First one.", "2 < 3 & <b>bold</b>", "<urls are words>", "Last."]


def test_columns_of_a_gzipped_table_with_blank_lines_between_articles(tmp_path):
    content = gzip.compress("one\t一\n\t\ntwo\t二\textra\n\nthree\t三\n".encode())
    path = tmp_path / "a.tsv.gz"
    assert _read(path, content, "tsv", column=2) == ["一", "", "二", "", "三"]
    assert _read(path, content, "tsv", column=1) == ["one", "", "two", "", "three"]


def test_a_missing_column_names_the_line(tmp_path):
    with pytest.raises(ConfigurationError, match="line 2: 1 columns, column 2 is needed"):
        _read(tmp_path / "a", "one\t1\nno tab\n", "tsv", column=2)


def test_unequal_counts_name_both(tmp_path):
    with pytest.raises(ConfigurationError, match=r"a\.de has 1 lines but a\.en has 3: "):
        list(aligned(iter(["x", "y", "z"]), iter(["x"]), ("a.en", "a.de")))
