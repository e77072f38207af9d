"""The shared reader of text: where lines end, and one line for what is not text."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from capsnmt import lines
from capsnmt.cli import ConfigurationError
from capsnmt.evaluation import outputs

# what str.splitlines would also split at
SEPARATORS = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("\na\n\n", ["", "a", ""]),
        ("a\r\nb\r\n", ["a", "b"]),
        (f"{SEPARATORS}\nb\n", [SEPARATORS, "b"]),
        ("\n", [""]),
        ("a\nb\0c\n", ["a", "b c"]),
        ("", []),
        ("\ufeffä\n\ufeffb\n", ["ä", "\ufeffb"]),
    ],
)
@pytest.mark.parametrize("block", [1, 3, lines.BLOCK])
def test_lines_end_at_newlines_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, expected: list, block: int
) -> None:
    monkeypatch.setattr(lines, "BLOCK", block)
    (tmp_path / "a").write_bytes(content.encode())
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(content.encode())
    assert [*lines.read_lines(tmp_path / "a")] == expected
    assert [*lines.read_lines(tmp_path / "a.gz")] == expected


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("missing", None, "no such file"),
        (".", None, "cannot be read: Is a directory"),
        ("empty", b"", "is empty"),
        ("latin1", "gut\nschön\n".encode("latin-1"), "line 2: not UTF-8 .* at byte 3"),
        ("no.gz", b"plain text", "not a complete gzip file"),
        ("cut.gz", gzip.compress(b"a\n" * 999, mtime=0)[:-9], "not a complete gzip file"),
        ("nul", b"a\0b\nc\n", "line 1: holds a NUL"),
    ],
)
@pytest.mark.parametrize("block", [7, lines.BLOCK])
def test_what_cannot_be_read_is_named_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: bytes,
    complaint: str,
    block: int,
) -> None:
    monkeypatch.setattr(lines, "BLOCK", block)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        outputs.read_lines(str(tmp_path / name))
    assert len(str(caught.value).splitlines()) == 1


def test_blank_lines_are_counted_and_a_blank_text_is_refused() -> None:
    assert lines.blank_lines(["a", "", " \t"], "x") == 2
    with pytest.raises(ConfigurationError, match="x: all 2 lines are blank"):
        lines.blank_lines(["", " "], "x")
