"""Tiny corpora in their true formats."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from capsnmt.checksums import NAME
from capsnmt.corpora.__main__ import main
from tests.commands import succeed
from tests.real_data import real_data

SENTENCES = [
    ("A man sleeps .", "Ein Mann schläft ."),
    ("Two dogs run.", "Zwei Hunde rennen."),
    ("The dog, a big one, barks.", "Der Hund, ein großer, bellt."),
    ("A man and a dog run.", "Ein Mann und ein Hund rennen."),
]


@pytest.fixture
def multi30k() -> Path:
    return real_data("multi30k")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with an English-German corpus of three splits, in plain text."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, copies in (("train", 5), ("val", 2), ("test", 1)):
        for side, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in SENTENCES * copies)
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    return folder


def recipe_of(corpus: Path, mirrors: tuple[str, ...] = ("http://127.0.0.1:9",)) -> dict:
    """The recipe of `corpus`; nothing listens at its default mirror."""
    files = sorted(path for path in corpus.iterdir() if path.suffix in {".en", ".de"})
    return {
        "description": "a test",
        "pair": "en-de",
        "corpus": {
            "kind": "published",
            "mirrors": list(mirrors),
            "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
            "splits": {
                split: f"{stem}.{{language}}"
                for split, stem in (("train", "train"), ("valid", "val"), ("test", "test"))
            },
        },
        "tokenisers": {"en": "moses", "de": "moses"},
        "segmentation": {"size": 30},
    }


@pytest.fixture
def recipe_file(corpus: Path, tmp_path: Path) -> Path:
    return write_recipe(tmp_path / "tiny.yaml", recipe_of(corpus))


def write_recipe(path: Path, recipe: dict) -> Path:
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """The contents of every file below `folder` but the lock and the cache of checksums."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in {".lock", NAME}
    }


@pytest.fixture
def run(capsys):
    """Run the command line in this process; return its exit status and its messages."""

    def run(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        status = main([*map(str, arguments), "--workers", "1"])
        return status, capsys.readouterr().err

    return run


@pytest.fixture
def no_fairseq(monkeypatch):
    """Put the segmented text itself in the data-bin, because fairseq takes seconds to start."""

    def binarise(command: list[str], destination: Path) -> None:
        destination.mkdir()
        text = Path(command[command.index("--trainpref") + 1])
        for side in ("--source-lang", "--target-lang"):
            language = command[command.index(side) + 1]
            content = text.with_name(f"train.{language}").read_bytes()
            (destination / f"train.{language}.bin").write_bytes(content)

    monkeypatch.setattr("capsnmt.corpora.steps.binarise", binarise)


def binarise_by_fork(command: list[str], destination: Path) -> None:
    """Run fairseq-preprocess as a fork, which does not wait for the imports."""
    succeed(*command[2:])


def write_wheel(path, contents):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


def write_sdist(path, contents):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


WRITERS = [("tool-1.0-py3-none-any.whl", write_wheel), ("tool-1.0.tar.gz", write_sdist)]
