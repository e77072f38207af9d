"""What all commands share: errors of one line, files that are complete or absent, lines of text."""

import bz2
import errno
import gzip
import io
import lzma
import os
import sys
from pathlib import Path
from typing import Tuple

import pytest

from capsnmt import lines
from capsnmt.cli import ConfigurationError, OneLineParser, at_least, run_command
from capsnmt.evaluation import outputs
from capsnmt.files import atomic_writer, check_file_name, write_all
from tests.commands import is_refusal
from tests.interpreter import ran


def test_an_error_of_any_length_is_one_short_line_with_its_fix(capsys: pytest.CaptureFixture):
    def fail() -> None:
        raise ConfigurationError(f"a.yaml: {'x' * 100_000}\nis no name; give a shorter one")

    assert run_command(fail) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: a.yaml: xxx")
    assert line.endswith("xxx\\nis no name; give a shorter one\n")
    assert len(line) < 2000


def test_the_name_of_a_file_is_printed_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]):
    name = os.fsdecode(b"a\x80.pt")
    assert run_command(lambda: print(f"{name}: written")) == 0
    assert capfdbinary.readouterr().out == b"a\x80.pt: written\n"


@pytest.mark.one_host
def test_a_command_with_closed_streams_ends_as_with_empty_ones(tmp_path: Path):
    run = 'exec "$0" -m capsnmt.evaluation "x=$1" --reference "$1" <&- >&-'
    done = ran(["sh", "-c", run, sys.executable, tmp_path / "none"])
    is_refusal(done.returncode, done.stderr, f"error: {tmp_path}/none: there is no such file")


def test_a_whole_number_is_in_its_range(capsys: pytest.CaptureFixture) -> None:
    parser = OneLineParser(prog="it")
    parser.add_argument("--n", type=at_least(2, 9))
    assert [parser.parse_args([f"--n={text}"]).n for text in ("2", "07", "9")] == [2, 7, 9]
    small, large = "is not a whole number of at least 2", "is more than 9"
    refused = {"1": f"'1' {small}", "10": f"'10' {large}", "9" * 10_000: large}
    for text, words in {**refused, **dict.fromkeys(("-3", "2.5", "\u0663", ""), small)}.items():
        status = run_command(lambda given=[f"--n={text}"]: parser.parse_args(given))
        line = capsys.readouterr().err
        assert (status, line.count("\n")) == (2, 1)
        assert words in line


def test_a_failing_write_keeps_the_older_file_and_names_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("older")

    def fail() -> None:
        with atomic_writer(tmp_path / "a") as file:
            file.write("newer")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as error:
        fail()
    assert error.value.filename == str(tmp_path / "a")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["older"]


@pytest.mark.parametrize("names", [("a", "file/b"), ("file/b", "a")], ids=str)
def test_of_several_files_all_are_written_or_none(names: Tuple[str, ...], tmp_path: Path) -> None:
    for name in ("a", "file"):
        (tmp_path / name).write_text("older")
    with pytest.raises(OSError, match="file"):
        write_all({tmp_path / name: b"new" for name in names})
    assert [path.read_text() for path in tmp_path.iterdir()] == ["older", "older"]


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", ".x", "-x", "a/b", "a\nb", "a\0b", "\x1b[2J", "é" * 101, "\udcff"]
)
def test_a_name_that_cannot_be_a_file_is_one_line_and_others_are_accepted(name: str) -> None:
    for other in ("em", "wmt14 en-de, 8 GPUs", "漢字", "_x", "a.b=100%"):
        check_file_name(other, "--name")
    with pytest.raises(ConfigurationError, match=r"--name: .* cannot be the name") as error:
        check_file_name(name, "--name")
    assert str(error.value).isprintable()


# what str.splitlines would also split at
SEPARATORS = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("\na\n\n", ["", "a", ""]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\rb\rc\nd\n", ["a\rb\rc", "d"]),
        (f"{SEPARATORS}\nb\n", [SEPARATORS, "b"]),
        ("\n", [""]),
        ("a\nb\0c\n", ["a", "b c"]),
        ("", []),
        ("\ufeffä\n\ufeffb\ufeffc\n", ["ä", "bc"]),
    ],
)
def test_lines_end_at_newlines_alone(tmp_path: Path, content: str, expected: list) -> None:
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
        ("one", "schön\n".encode() + b"gut\nsch\xf6n\n", "line 3: .* correct this line.* 1 others"),
        ("two", b"a\n\xf6\n\xf6\n\xc3\xb6\n", "line 2: .* correct the 2 such .* 1 others"),
        ("no.gz", b"plain text", "not a complete gzip file"),
        ("cut.gz", gzip.compress(b"a\n" * 999, mtime=0)[:-9], "not a complete gzip file"),
        ("packed", gzip.compress(b"a\n", mtime=0), "line 1: it is compressed; unpack it$"),
        ("a.xz", lzma.compress(b"a\n"), "line 1: it is compressed; unpack it$"),
        ("a.bz2", bz2.compress(b"a\n"), "line 1: it is compressed; unpack it$"),
        ("a.zip", b"PK\x03\x04\x14\0\n", "line 1: it is compressed; unpack it$"),
        ("utf16", "schön\n".encode("utf-16"), "line 1: .* iconv -f utf-16"),
        ("windows", "„schön“\n".encode("cp1252"), "line 1: .* iconv -f cp1252"),
        ("mac", b"a\rb\rc\r", "line 1: its lines end in .r alone; convert it, as by tr"),
        ("nul", b"a\0b\nc\n", "line 1: holds a NUL"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"^.*(?:{complaint}).*\Z"):
        outputs.read_lines(str(tmp_path / name))


def test_a_bad_line_of_a_pipe_is_refused_before_the_next_one() -> None:
    pipe = io.BytesIO(b"a\n\xff\nb\n")
    pipe.seekable = lambda: False  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match=r"x, line 2: .* convert the file"):
        [*lines.stream_lines(pipe, "x")]
    assert pipe.read() == b"b\n"


def test_blank_lines_are_counted_and_a_blank_text_is_refused() -> None:
    assert lines.blank_lines(["a", "", " \t"], "x") == 2
    with pytest.raises(ConfigurationError, match="x: all 2 lines are blank"):
        lines.blank_lines(["", " "], "x")
