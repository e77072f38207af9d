"""Reading text files: where lines end, and one line for what cannot be read."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.text_files import read_lines

# what str.splitlines would also split at
SEPARATORS = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("\na\n\n", ["", "a", ""]),
        ("a\r\nb\r\n", ["a", "b"]),
        (f"{SEPARATORS}\nb\n", [SEPARATORS, "b"]),
        ("\n", [""]),
    ],
)
def test_lines_end_at_newlines_alone(tmp_path: Path, content: str, lines: list) -> None:
    (tmp_path / "a").write_bytes(content.encode())
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(content.encode())
    assert read_lines(str(tmp_path / "a")) == lines
    assert read_lines(str(tmp_path / "a.gz")) == lines


def test_a_dash_is_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("ä\n".encode())))
    assert read_lines("-") == ["ä"]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("missing", None, "no such file"),
        (".", None, "cannot be read: Is a directory"),
        ("empty", b"", "is empty"),
        ("latin1", "gut\nschön\n".encode("latin-1"), "line 2: byte 0xf6 is not UTF-8"),
        ("no.gz", b"plain text", "not a complete gzip file"),
        ("cut.gz", gzip.compress(b"a\n" * 999, mtime=0)[:-9], "not a complete gzip file"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        read_lines(str(tmp_path / name))
    assert len(str(caught.value).splitlines()) == 1
