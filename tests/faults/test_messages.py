"""What a command says about a bad input: one line with the value, what is allowed, and the fix."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from pathlib import Path
from typing import List, Tuple

import pytest

from tests.faults.refusals import is_refusal, run
from tests.interpreter import ran
from tests.support import REPO

# the command lines of both hosts are the same code; at night both run them
pytestmark = [pytest.mark.system, pytest.mark.one_host]
ROW: List[object] = ["--config", "{world}/tiny.yaml", "--cpu", "--output", "out", "--dry-run"]
RUN = "{world}/runs/plain/seed-1"
DATA = "{world}/runs/data"
# every command with an input that lets it end early, if it looks at its streams at all
SETS = {
    "prepare": ("capsnmt.corpora", ["{world}/recipe.yaml", "--output", "out", "--local", "none"]),
    "run": ("capsnmt.launch", ROW),
    "evaluate": ("capsnmt.evaluation", ["none"]),
    "translate": ("capsnmt.translate", ["none"]),
    "report": ("capsnmt.report", ["none", "--output", "out"]),
    "analyse": ("capsnmt.analysis", ["none", "--output", "out"]),
    "average": ("capsnmt.checkpoints.average", ["none", "--output", "out"]),
    "export": ("capsnmt.export", ["none", "--output", "out"]),
}


@pytest.mark.parametrize(
    ("name", "number", "words"),
    [
        *((name, "1", ("standard output is closed", "/dev/null")) for name in SETS),
        ("run", "2", ("standard error is closed", "/dev/null")),
        ("translate", "0", ("standard input is closed", "< FILE")),
    ],
)
def test_a_closed_stream_is_refused(
    name: str, number: str, words: Tuple[str, ...], world: Path, tmp_path: Path
) -> None:
    module, argv = SETS[name]
    if number == "0":
        argv = [RUN, "--data", DATA]
    done = run(tmp_path, module, *(str(x).format(world=world) for x in argv), closed=number)
    is_refusal(done.returncode, done.stdout if number == "2" else done.stderr, *words)
    assert not list(tmp_path.iterdir())


# encoding "": the text is empty
@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("utf-16", ["line 1", "not UTF-8", "iconv -f utf-16 -t utf-8"]),
        ("utf-16-le", ["line 1", "UTF-16", "convert the file"]),
        ("", ["train.en and train.de are empty", "give other files"]),
    ],
)
def test_a_training_text_that_is_none_is_refused(
    encoding: str, words: List[str], world: Path, tmp_path: Path
) -> None:
    recipe = (world / "recipe.yaml").read_text("utf-8")
    corpus = shutil.copytree(world / "corpus", tmp_path / "corpus")
    for path in corpus.glob("train.*"):
        old = path.read_bytes()
        path.write_bytes(old.decode("utf-8").encode(encoding) if encoding else b"")
        checksums = [hashlib.sha256(content).hexdigest() for content in (old, path.read_bytes())]
        recipe = recipe.replace(*checksums)
    (tmp_path / "recipe.yaml").write_text(recipe, "utf-8")
    argv = ["recipe.yaml", "--output", "out", "--local", "corpus", "--workers", "1"]
    done = run(tmp_path, "capsnmt.corpora", *argv)
    *progress, error = done.stderr.splitlines(keepends=True)
    assert not any("error" in line for line in progress), done.stderr
    is_refusal(done.returncode, error, "train.", *words)
    assert not (tmp_path / "out" / "bin").exists()


def test_nothing_of_fairseq_stands_before_the_error(tmp_path: Path) -> None:
    words = ["-W", "ignore", "-m", "capsnmt.export", "none", "--output", "out.pt"]
    done = ran([sys.executable, *words], tmp_path)  # fairseq's syntax warns once
    is_refusal(done.returncode, done.stderr)


def test_the_readme_names_the_error_without_the_plugin(world: Path, tmp_path: Path) -> None:
    run_folder = world / "runs" / "plain" / "seed-1"
    done = run(
        *(tmp_path, "fairseq_cli.generate", world / "runs" / "data" / "bin", "--cpu"),
        *("--path", run_folder / "checkpoints" / "checkpoint_last.pt"),
    )
    assert done.returncode == 1
    for page in ("README.md", "docs/hosts.md"):
        (sentence,) = re.findall(r"unrelated error: ([^.]*)\.", (REPO / page).read_text("utf-8"))
        error = done.stderr.strip().rpartition("\nTraceback")[2]
        assert any(name in error for name in re.findall(r"`(.*?)`", sentence)), error[-3000:]


def test_a_recipe_is_looked_for_beside_its_row(world: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "mine.yaml").write_bytes((world / "recipe.yaml").read_bytes())
    row = (world / "tiny.yaml").read_text("utf-8").replace(f"{world}/recipe.yaml", "mine.yaml")
    (tmp_path / "rows" / "tiny.yaml").write_text(row, "utf-8")
    argv = ["--config", "../rows/tiny.yaml", "--cpu", "--dry-run"]
    done = run(tmp_path / "elsewhere", "capsnmt.launch", *argv)
    assert done.returncode == 0, done.stderr
    assert "../rows/mine.yaml" in done.stdout


def test_a_script_is_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(REPO / "scripts" / "run_evidence.sh")
    done = ran(["bash", tmp_path / "linked", "--dry-run"], tmp_path, PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert "capsnmt.report" in done.stdout
