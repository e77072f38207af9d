"""Writing files: complete or absent, and names that are safe."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.files import atomic_writer, check_file_name, write_all


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


def test_a_full_disk_names_the_file_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space") as error:
        write_all({tmp_path / "a": b"1", tmp_path / "b": b"2"})
    assert error.value.filename == str(tmp_path / "b")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["em", "wmt14 en-de, 8 GPUs", "漢字", "_x", "a.b=100%"])
def test_a_name_of_a_file_is_accepted(name: str) -> None:
    check_file_name(name, "--name")


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", ".x", "-x", "a/b", "a\nb", "a\0b", "\x1b[2J", "é" * 101, "\udcff"]
)
def test_a_name_that_cannot_be_a_file_is_one_line(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--name: .* cannot be the name") as error:
        check_file_name(name, "--name")
    assert str(error.value).isprintable()
