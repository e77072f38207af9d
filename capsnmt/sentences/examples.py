"""Labelled sentences or sentence pairs, from a text file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Iterator, List, NoReturn, Sequence, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.files import atomic_writer, plain_or_gzipped
from capsnmt.lines import read_lines

SPLITS = ("train", "valid", "test")
MANIFEST = "manifest.json"  # what a command that makes data writes last, with its settings


@dataclass(frozen=True)
class Example:
    """A labelled example and its place in a file."""

    sentences: Tuple[str, ...]  # tokens separated by spaces
    label: str
    bucket: int  # the group for which accuracy is reported: a length or a number of operators
    path: Path
    line: int  # from 1

    def reject(self, problem: str) -> NoReturn:
        """Raise a ``ConfigurationError`` that names the file and the line."""
        raise ConfigurationError(f"{self.path}, line {self.line}: {problem}")


def existing(path: Path, missing: str) -> Path:
    """Return the file, or its gzipped version; if there is neither, ``missing`` says what to do."""
    found = plain_or_gzipped(path)
    if not found.is_file():
        raise ConfigurationError(f"{path}: there is no such file, nor {path.name}.gz; {missing}")
    return found


def read_fields(path: Path, fields: Sequence[str]) -> Iterator[Tuple[int, List[str]]]:
    """Yield the number and fields of each line of a plain or gzipped table without header."""
    for number, line in enumerate(read_lines(path), 1):
        values = line.split("\t")
        if len(values) != len(fields):
            raise ConfigurationError(
                f"{path}, line {number}: {len(values) - 1} tabs: a line is {' TAB '.join(fields)}"
            )
        for name, value in zip(fields, values):
            if not value.strip():
                raise ConfigurationError(
                    f"{path}, line {number}: the {name} is empty; remove the line"
                )
        yield number, values


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file of examples; one that this package has not made is not replaced.

    A command that was killed left files without the manifest, but with the same lines.
    """
    text = "".join(f"{line}\n" for line in lines)
    made = (path.parent / MANIFEST).is_file() or not path.exists()
    if not made and path.read_bytes() != text.encode():
        raise ConfigurationError(
            f"{path} is there, and no {MANIFEST} says that it was made; choose another folder"
        )
    with atomic_writer(path) as file:
        file.write(text)
