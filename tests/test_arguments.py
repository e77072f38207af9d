"""The errors of commands: one line of limited length."""

from __future__ import annotations

import os
from typing import List, Optional

import pytest

from capsnmt.cli import ConfigurationError, OneLineParser, at_least, run_command


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2", None),
        ("07", None),
        ("9", None),
        ("1", "'1' is not a whole number of at least 2"),
        ("-3", "is not a whole number of at least 2"),
        ("2.5", "is not a whole number of at least 2"),
        ("\u0663", "is not a whole number of at least 2"),
        ("", "is not a whole number of at least 2"),
        ("10", "'10' is more than 9"),
        ("9" * 10_000, "is more than 9"),
    ],
)
def test_a_whole_number_is_in_its_range(
    text: str, words: Optional[str], capsys: pytest.CaptureFixture
) -> None:
    parser = OneLineParser(prog="it")
    parser.add_argument("--n", type=at_least(2, 9))
    found: List[int] = []
    status = run_command(lambda: found.append(parser.parse_args([f"--n={text}"]).n))
    line = capsys.readouterr().err
    if words is None:
        assert (status, found, line) == (0, [int(text)], "")
    else:
        assert (status, found) == (2, [])
        assert words in line
        assert line.count("\n") == 1
