from __future__ import annotations

import io
import sys

import pytest

from capsnmt.corpora import console
from capsnmt.corpora.console import watched, watched_bytes


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("total", [30, None])
def test_a_bar_on_a_terminal_loses_nothing_and_counts_from_what_was_there(monkeypatch, total):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(watched_bytes([b"x" * 10, b"y" * 10], 10, total)) == [b"x" * 10, b"y" * 10]
    assert "10.0" in sys.stderr.getvalue()
    assert list(watched(range(5), "step")) == list(range(5))


@pytest.mark.parametrize(("total", "shown"), [(30, "30"), (None, "unknown")])
def test_without_a_terminal_lines_show_the_progress(monkeypatch, capsys, total, shown):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(watched_bytes([b"x" * 10, b"y" * 10], 10, total)) == [b"x" * 10, b"y" * 10]
    printed = capsys.readouterr().err.splitlines()
    assert printed == [f"  fetched {done} of {shown} bytes" for done in (20, 30)]
    assert list(watched("ab", "step")) == ["a", "b"]
    assert capsys.readouterr().err.splitlines() == ["  step: 1 lines", "  step: 2 lines"]
