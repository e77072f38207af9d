"""The prepared data that the launcher's tests train on, and stand-ins for SLURM's commands."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, List, Mapping, Sequence

import pytest
from capsnmt.launch.cli import main
from fairseq import options
from fairseq_cli import preprocess

from capsnmt.launch.translation import GENERATE
from tests import forked

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
SENTENCES = {"train": 400, "valid": 8, "news": 6}
# Each command records its arguments; its answer is in a file of its name.
COMMAND = """#!/bin/sh
echo "$0 $*" >>"${0%/*}/called"
cat "${0%/*}/$(basename "$0").answer" 2>/dev/null
test ! -e "${0%/*}/$(basename "$0").fails" || { cat "${0%/*}/$(basename "$0").fails" >&2; exit 1; }
"""


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What data_prep leaves: the data-bin, the raw references, and the manifest."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "raw").mkdir()
    chance = random.Random(1)
    for split, lines in SENTENCES.items():
        pairs = [[chance.choice(WORDS) for _ in range(chance.randint(3, 8))] for _ in range(lines)]
        for language, step in (("en", 1), ("de", -1)):
            text = "".join(" ".join(pair[::step]) + "\n" for pair in pairs)
            (folder / "raw" / f"{split}.{language}").write_text(text, encoding="utf-8")
    prefixes = {"train": "train", "valid": "valid", "test": "news"}
    arguments = ["--source-lang", "en", "--target-lang", "de", "--joined-dictionary"]
    for split, name in prefixes.items():
        arguments += [f"--{split}pref", str(folder / "raw" / name)]
    parser = options.get_preprocessing_parser()
    preprocess.main(parser.parse_args([*arguments, "--destdir", str(folder / "bin")]))
    (folder / "manifest.json").write_text('{"subsets": {"news": "test"}}', encoding="utf-8")
    return folder


def plan(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    """The plan of a launch."""
    assert main([*arguments, "--dry-run"]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


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


def run_without_generation(
    argv: Sequence[str],
    variables: Mapping[str, str],
    on_line: Callable[[str], None],
    errors: Any = None,
    *_: Any,
) -> int:
    """Stand in for ``process.run`` where no test looks at the translations: they are one word."""
    if argv[2] != GENERATE:
        return run_forked(argv, variables, on_line, errors)
    for number in range(SENTENCES["news"]):
        on_line(f"H-{number}\t-1.0\t{WORDS[0]}\n")
    return 0


class Cluster:
    """Commands that stand in for those of SLURM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("sbatch", "squeue", "scontrol"):
            (folder / name).write_text(COMMAND, encoding="utf-8")
            (folder / name).chmod(0o755)

    def answers(self, command: str, answer: str, kind: str = "answer") -> None:
        (self.folder / f"{command}.{kind}").write_text(answer + "\n", encoding="utf-8")

    def called(self, command: str) -> List[str]:
        path = self.folder / "called"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in lines if f"/{command} " in line]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{cluster.folder}:{os.environ['PATH']}")
    cluster.answers("sbatch", "7")
    cluster.answers("squeue", "")
    return cluster
