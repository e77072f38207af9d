"""What is installed: the wheel has every file, and a command names the extra that it needs."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import List

import pytest

from tests.interpreter import ran
from tests.support import REPO

# on one host: pip builds a wheel of Python files the same way on both
pytestmark = [pytest.mark.system, pytest.mark.one_host]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of a copy of the tree because a build leaves files in it."""
    folder = tmp_path_factory.mktemp("wheel")
    tracked = ran(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], REPO)
    for name in filter(None, tracked.stdout.split("\0")):
        source, copy = REPO / name, folder / "tree" / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    build = ["pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    done = ran([sys.executable, "-m", *build, folder / "tree"])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(folder.glob("capsnmt-*.whl"))


def test_it_has_every_module_configuration_and_recipe_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {
        f"capsnmt/{path.relative_to(REPO / 'capsnmt').as_posix()}"
        for suffix in ("py", "j2", "html", "js", "cpp", "h")
        for path in (REPO / "capsnmt").rglob(f"*.{suffix}")
    }
    resources = {
        f"capsnmt/{kind}/{path.relative_to(REPO / folder).as_posix()}"
        for kind, folder in (("configs", "configs"), ("recipes", "data_prep/recipes"))
        for path in (REPO / folder).rglob("*.yaml")
    }
    assert names == package | resources


# --- with torch and PyYAML alone; scripts/extras_test.sh installs the wheel with each extra
HIDDEN = (
    *("compare_mt", "fairseq", "fairseq_cli", "hydra", "jieba", "jinja2", "markdown_it"),
    *("markupsafe", "matplotlib", "numpy", "omegaconf", "polib", "requests", "sacrebleu"),
    *("sacremoses", "scipy", "sentencepiece", "six", "sklearn", "subword_nmt", "tqdm"),
)
PROGRAM = (
    f"import runpy, sys; sys.modules.update(dict.fromkeys({HIDDEN})); sys.argv = sys.argv[1:];"
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("evaluation", "capsnmt.evaluation a=text --reference text --input plain"),
        ("fairseq", "capsnmt.launch --dataset multi30k --dry-run"),
        ("fairseq", "capsnmt.launch --dataset logical_inference --dry-run"),
        ("fairseq", "capsnmt.translate run"),
        ("fairseq", "capsnmt.export run --output exported.pt"),
        ("fairseq", "capsnmt.analysis run --output analysis"),
        ("report", "capsnmt.report run --output page"),
        ("data", "capsnmt.corpora multi30k --output prepared"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(extra: str, command: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b c\n", "utf-8")
    words: List[str] = command.split()
    done = ran([sys.executable, "-c", PROGRAM, *words], tmp_path)
    *others, line = done.stderr.splitlines()
    assert (done.returncode, others) == (2, [])
    assert line.startswith("error: ")
    assert line.endswith(f" is not installed: pip install 'capsnmt[{extra}]'")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("module", ["senteval", "build", "logical_inference"])
def test_what_makes_sentences_needs_no_extra(module: str) -> None:
    words = [f"capsnmt.sentences.{module}", "--help"]
    done = ran([sys.executable, "-c", PROGRAM, *words])
    assert (done.returncode, done.stderr) == (0, "")
