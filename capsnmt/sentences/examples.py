"""Labelled sentences or sentence pairs, from a text file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NoReturn, Sequence, Tuple

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.files import locked, plain_or_gzipped, write_all
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
        values = [value.strip() for value in line.split("\t")]  # "NN " is no other class than "NN"
        problem = ""
        if len(values) != len(fields):
            problem = f"{len(values) - 1} tabs: a line is {' TAB '.join(fields)}"
        elif not all(values):
            problem = f"the {fields[values.index('')]} is empty; remove the line"
        if problem:
            raise ConfigurationError(f"{path}, line {number}: {problem}")
        yield number, values


def write_examples(
    folder: Path, files: Mapping[str, Iterable[str]], record: Mapping[str, Any]
) -> None:
    """Write the lines of files of examples, all or none, and their manifest.

    Complete files are only read. No others are replaced: classifiers may be trained on them. A
    command that was killed left files without the manifest, but with the same lines.
    """
    contents = {folder / name: "".join(f"{x}\n" for x in files[name]).encode() for name in files}
    manifest = folder / MANIFEST

    def absent() -> Dict[Path, bytes]:
        """Return what is not there; raise if it would replace anything."""
        missing = {path: content for path, content in contents.items() if not path.exists()}
        others = [x for x in contents if x not in missing and x.read_bytes() != contents[x]]
        if missing and manifest.exists() and records.load(manifest) != records.plain(record):
            others.append(manifest)
        if others:
            raise ConfigurationError(
                f"{others[0]} is there, and not of this command; choose another folder, or delete "
                f"this one"
            )
        return missing

    if absent() or not manifest.exists():
        with locked(folder / ".lock", f"waiting for another command that writes into {folder}"):
            write_all(absent())
            records.write(manifest, record)
