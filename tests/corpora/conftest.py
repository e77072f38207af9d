"""Tiny corpora in their true formats."""

import hashlib
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence

import pytest
import yaml

from capsnmt.corpora import __main__ as preparation
from capsnmt.corpora.__main__ import main
from tests.commands import is_refusal, succeed
from tests.corpora.server import Server, serving

SENTENCES = [
    ("A man sleeps .", "Ein Mann schläft ."),
    ("Two dogs run.", "Zwei Hunde rennen."),
    ("The dog, a big one, barks.", "Der Hund, ein großer, bellt."),
    ("A man and a dog run.", "Ein Mann und ein Hund rennen."),
]
Run = Callable[..., str]


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


def recipe_of(corpus: Path) -> Dict:
    """The recipe of `corpus`, which no mirror has."""
    files = sorted(path for path in corpus.iterdir() if path.suffix in {".en", ".de"})
    return {
        "description": "a test",
        "pair": "en-de",
        "files": {
            path.name: {"checksum": hashlib.sha256(path.read_bytes()).hexdigest()} for path in files
        },
        "splits": {
            split: [{"file": f"{stem}.{{language}}"}]
            for split, stem in (("train", "train"), ("valid", "val"), ("test", "test"))
        },
        "tokenisers": {"en": "moses", "de": "moses"},
        "segmentation": {"size": 30},
    }


def write_recipe(path: Path, recipe: Dict) -> Path:
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture
def recipe_file(corpus: Path, tmp_path: Path) -> Path:
    return write_recipe(tmp_path / "tiny.yaml", recipe_of(corpus))


def tree(folder: Path) -> Dict[str, bytes]:
    """The contents of every file below `folder` but those whose names begin with a dot."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def text(path: Path) -> List[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture
def run(capsys: pytest.CaptureFixture) -> Run:
    """``run(ARG, ..., ends=0)`` runs the command line in this process; return its messages."""

    def run(*arguments: object, ends: int = 0) -> str:
        capsys.readouterr()
        status = main([*map(str, arguments), "--workers", "1"])
        printed = capsys.readouterr().err
        assert status == ends, printed
        return printed

    return run


@pytest.fixture
def refuse(run: Run) -> Callable[..., None]:
    """``refuse(ARGUMENTS, WORD, ...)``: what it says last is an error with the words."""

    def refuse(arguments: Sequence[object], *words: str) -> None:
        is_refusal(2, run(*arguments, ends=2).splitlines(keepends=True)[-1], *words)

    return refuse


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of nothing yet; a repeated request does not wait."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with serving({}) as server:
        yield server


@pytest.fixture
def no_fairseq(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the segmented text itself in the data-bin, because fairseq takes seconds to start."""

    def binarise(arguments: List[str], destination: Path, lock: Optional[int]) -> None:
        assert int(arguments[arguments.index("--workers") + 1]) <= preparation.CORES
        destination.mkdir()
        text = Path(arguments[arguments.index("--trainpref") + 1])
        for side in ("--source-lang", "--target-lang"):
            language = arguments[arguments.index(side) + 1]
            content = text.with_name(f"train.{language}").read_bytes()
            (destination / f"train.{language}.bin").write_bytes(content)

    monkeypatch.setattr("capsnmt.corpora.binarise.binarise", binarise)


def binarise_by_fork(arguments: List[str], destination: Path, lock: Optional[int]) -> None:
    """Run fairseq-preprocess as a fork, which does not wait for the imports."""
    succeed("fairseq_cli.preprocess", *arguments)
