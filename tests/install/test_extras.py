"""With torch and PyYAML alone, every command names the extra that it needs in one line.

``scripts/extras_test.sh`` installs the wheel with each extra alone, and uses every command.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import List

import pytest

from tests.interpreter import ran

pytestmark = [pytest.mark.system, pytest.mark.one_host]
HIDDEN = (
    *("compare_mt", "fairseq", "fairseq_cli", "hydra", "jieba", "jinja2"),
    *(
        "markdown_it",
        "markupsafe",
        "matplotlib",
        "numpy",
        "omegaconf",
        "polib",
        "requests",
        "sacrebleu",
        "sacremoses",
    ),
    *("scipy", "sentencepiece", "six", "sklearn", "subword_nmt", "tqdm"),
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
