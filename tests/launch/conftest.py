"""The prepared data that the launcher's tests train on, and stand-ins for SLURM's commands."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Iterator, Mapping, Sequence

import pytest
from fairseq import options
from fairseq_cli import preprocess

from capsnmt.launch.__main__ import main
from capsnmt.launch.preemption import ASKING
from tests import forked
from tests.commands import environment
from tests.frozen.interpreter import serving

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
SENTENCES = {"train": 400, "valid": 8, "news": 6}
# In the even data every sentence has six words and its end: all of it is one update, cut evenly.
EVEN_TOKENS = SENTENCES["train"] * 7
Launch = Callable[..., str]


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A training in the process of the tests leaves signals handled and blocked."""
    before = {signum: signal.getsignal(signum) for signum in ASKING}
    yield
    for signum, handler in before.items():
        signal.signal(signum, signal.SIG_IGN)  # drops what is pending
        signal.signal(signum, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What data_prep leaves: the data-bin, the raw references, and the manifest."""
    return _prepare(tmp_path_factory.mktemp("prepared"), lambda chance: chance.randint(3, 8))


@pytest.fixture(scope="session")
def prepared_evenly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with sentences of one length."""
    return _prepare(tmp_path_factory.mktemp("prepared_evenly"), lambda _: 6)


def _prepare(folder: Path, length: Callable[[random.Random], int]) -> Path:
    (folder / "raw").mkdir()
    chance = random.Random(1)
    for split, lines in SENTENCES.items():
        pairs = [[chance.choice(WORDS) for _ in range(length(chance))] for _ in range(lines)]
        for language, step in (("en", 1), ("de", -1)):
            text = "".join(" ".join(pair[::step]) + "\n" for pair in pairs)
            (folder / "raw" / f"{split}.{language}").write_text(text, encoding="utf-8")
    prefixes = {"train": "train", "valid": "valid", "test": "news"}
    arguments = ["--source-lang", "en", "--target-lang", "de", "--joined-dictionary"]
    for split, name in prefixes.items():
        arguments += [f"--{split}pref", str(folder / "raw" / name)]
    parser = options.get_preprocessing_parser()
    preprocess.main(parser.parse_args([*arguments, "--destdir", str(folder / "bin")]))
    manifest = '{"pair": "en-de", "pairs": 400, "subsets": {"valid": "valid", "news": "test"}}'
    (folder / "manifest.json").write_text(manifest, encoding="utf-8")
    return folder


@pytest.fixture
def plan(capsys: pytest.CaptureFixture) -> Launch:
    """``plan(FLAG, ...)`` returns what a dry run prints."""

    def print_plan(*arguments: object) -> str:
        status = main([*map(str, arguments), "--dry-run"])
        printed = capsys.readouterr()
        assert (status, printed.err) == (0, "")
        return printed.out

    return print_plan


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An interpreter that starts at once."""
    with serving(tmp_path_factory.mktemp("interpreter"), environment()) as python:
        yield python


@pytest.fixture
def launch(
    interpreter: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Launch:
    """``launch(FLAG, ..., status=0)`` runs the launcher's commands and returns all it prints."""
    monkeypatch.setattr(sys, "executable", str(interpreter))

    def run(*arguments: object, status: int = 0) -> str:
        ended = main([*map(str, arguments)])
        printed = capsys.readouterr()
        assert ended == status, printed.out + printed.err
        assert not status or printed.err.count("\n") == 1, printed.err
        return printed.out + printed.err

    return run


def run_forked(
    argv: Sequence[str],
    variables: Mapping[str, str],
    on_line: Callable[[str], None],
    errors: Any = None,
    *_: Any,
) -> int:
    """Stand in for ``process.run``: the command is forked from a process with fairseq imported."""
    _, _, module, *words = argv
    with TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        for stream in streams:
            stream.touch()
        child = forked.start(module, words, {**os.environ, **variables}, streams)
        child.join()
        for line in streams[1].read_text("utf-8").splitlines(keepends=True):
            on_line(line)
        print(streams[2].read_text("utf-8"), file=errors or sys.stderr)
    assert child.exitcode is not None
    return child.exitcode
