from __future__ import annotations

import random

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora import blocks
from capsnmt.corpora.blocks import cut, in_parts, map_lines, write_parts
from capsnmt.corpora.lines import read_lines


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("bytes_at_once", [1, 5, 1 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_blocks_have_every_line_once_and_the_same_of_each_file(
    tmp_path, monkeypatch, size, bytes_at_once, seed
):
    monkeypatch.setattr(blocks, "LINES", size)
    monkeypatch.setattr(blocks, "BLOCK", bytes_at_once)
    rng = random.Random(seed)
    number = rng.randint(1, 30)
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        lines = ["".join(rng.choices("aé词\r\u2028", k=rng.randint(0, 4))) for _ in range(number)]
        end = "\n" if seed else ""
        path.write_text("\ufeff" + "\n".join(lines) + (end or "x"), encoding="utf-8", newline="")
    made = cut(*paths)
    assert [block.before for block in made] == list(range(0, number, size))
    for side, path in enumerate(paths):
        read = [block.read(side) for block in made]
        assert [line for lines in read for line in lines] == list(read_lines(path))
        assert [len(lines) for lines in read] == [block.lines for block in made]


def test_an_empty_file_has_no_block(tmp_path):
    (tmp_path / "a").touch()
    assert cut(tmp_path / "a") == []
    write_parts([tmp_path / "b"], map_lines(lambda: str.upper, (), tmp_path / "a", 2), "b")
    assert (tmp_path / "b").read_bytes() == b""


def test_unequal_line_counts_name_both_counts(tmp_path):
    (tmp_path / "a.en").write_text("1\n2\n3\n")
    (tmp_path / "a.de").write_text("1\n2")
    for order in ("a.en", "a.de"), ("a.de", "a.en"):
        with pytest.raises(ConfigurationError, match=r"a\.de has 2 lines but .*a\.en has 3: "):
            cut(*(tmp_path / name for name in order))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"gone\.en: no such file"):
        cut(tmp_path / "gone.en")


def test_another_encoding_is_refused_with_the_line_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "LINES", 2)
    path = tmp_path / "latin1.de"
    path.write_bytes("eins\nzwei\ndrei\nfünf\nsechs\n".encode("latin-1"))
    parts = map_lines(_identity, (), path, 2)
    with pytest.raises(ConfigurationError, match=r"latin1\.de, line 4: not UTF-8 \(.* at byte 1\)"):
        write_parts([tmp_path / "out"], parts, "out")


def _identity():
    return str


@pytest.mark.parametrize("workers", [1, 2])
def test_lines_are_written_in_order_whatever_the_number_of_workers(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(blocks, "LINES", 10)
    lines = [f"line {number}" for number in range(95)]
    (tmp_path / "a").write_text("\n".join(lines))
    parts = map_lines(_shouting, (), tmp_path / "a", workers)
    assert write_parts([tmp_path / "b"], parts, "b").lines == 95
    assert (tmp_path / "b").read_text() == "".join(f"{line.upper()}\n" for line in lines)


def _shouting():
    return str.upper


def test_a_stream_of_pairs_becomes_parts(monkeypatch):
    monkeypatch.setattr(blocks, "LINES", 2)
    parts = list(in_parts(iter([("a", "b"), ("c", "d"), ("e", "ü")])))
    assert [part.sides for part in parts] == [(b"a\nc\n", b"b\nd\n"), (b"e\n", "ü\n".encode())]
    assert [part.lines for part in parts] == [2, 1]
