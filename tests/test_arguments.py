"""The errors of commands: one line of limited length."""

from __future__ import annotations

import os

import pytest

from capsnmt.cli import ConfigurationError, run_command


def test_an_error_of_any_length_is_one_short_line_with_its_fix(capsys: pytest.CaptureFixture):
    def fail() -> None:
        raise ConfigurationError(f"a.yaml: {'x' * 100_000}\nis no name: give a shorter one")

    assert run_command(fail) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: a.yaml: xxx")
    assert line.endswith("xxx\\nis no name: give a shorter one\n")
    assert len(line) < 2000


def test_the_name_of_a_file_is_printed_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]):
    name = os.fsdecode(b"a\x80.pt")
    assert run_command(lambda: print(f"{name}: written")) == 0
    assert capfdbinary.readouterr().out == b"a\x80.pt: written\n"
