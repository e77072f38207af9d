"""A command does what its page says, from wherever it is called, or says why not in one line."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Dict

import pytest

from tests.commands import command, is_refusal, printed, succeed
from tests.interpreter import ran
from tests.kills.launch import write_sources
from tests.launch.conftest import Launch, launch, plan
from tests.small_row import arguments
from tests.support import PLUGIN, REPO
from tests.translate.conftest import runs

__all__ = ["launch", "plan", "runs"]  # fixtures

pytestmark = pytest.mark.system


def test_seeds_that_are_named_one_by_one_are_analysed_as_those_of_a_row(
    runs: Dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a folder that is named from here; no terminal is needed."""
    monkeypatch.chdir(tmp_path)
    config = (runs["plain"] / "config.json").read_text("utf-8")
    other = shutil.copytree(runs["plain"], tmp_path / "plain" / "seed-2")
    (other / "config.json").write_text(json.dumps({**json.loads(config), "seed": 2}), "utf-8")
    done = command(
        *("capsnmt.analysis", runs["plain"], other, "mine=plain/seed-2"),
        *("--output", "out", "--only", "attention"),
        *("--sentences", "2", "--device", "cpu"),
        *("--browser-sentences", "0", "--ablation-sentences", "0"),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "out" / "analysis.html").read_text("utf-8")
    assert "Analysis of plain-seed-1, plain-seed-2, mine" in page
    assert list((tmp_path / "out" / "figures").iterdir())
    assert "%|" not in done.stderr  # a log has no progress bars
    assert "\r" not in done.stderr


def test_the_recorded_version_is_that_of_the_checkout_in_a_hook_of_another(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "from capsnmt.files import own_version; print(own_version())"]
    assert printed(words, GIT_DIR=str(tmp_path)) == printed(words)


def test_the_results_of_a_script_are_where_they_are_asked_for(tmp_path: Path) -> None:
    """From a folder with a package that is called as one of ours."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    flags = ("--device", "cpu", "--only", "machine", "--output", "found")
    printed(["bash", REPO / "scripts" / "check_gpu.sh", *flags], tmp_path)
    assert "machine" in (tmp_path / "found" / "records.jsonl").read_text("utf-8")


def test_hydra_takes_a_switch_as_the_page_spells_it() -> None:
    page = (REPO / "docs" / "launch.md").read_text("utf-8")
    (switch,) = re.findall(r"`(\S*model\.head_aggregation=em)`", page)
    printed = succeed(
        *("fairseq_cli.hydra_train", "--config-dir", REPO / "configs" / "hydra"),
        *("--config-name", "wmt14_en_de_li2019_effective", f"common.user_dir='{PLUGIN}'"),
        *("task.data=data", switch, "--cfg", "job"),
    )
    assert "head_aggregation: em" in printed


@pytest.mark.nightly  # two imports of torch
@pytest.mark.parametrize("given", ["checkout", "name"])
def test_the_plugin_is_found_in_a_checkout_of_its_name(given: str, tmp_path: Path) -> None:
    """In a folder that holds a checkout named ``capsnmt``, without PYTHONPATH."""
    (tmp_path / "capsnmt").symlink_to(REPO)
    folder = tmp_path / "capsnmt" if given == "checkout" else "capsnmt"
    words = ["-W", "ignore", "-m", "fairseq_cli.train", "data", "--user-dir", folder]
    words += ["--arch", "transformer_em_routing"]
    done = ran([sys.executable, *words], tmp_path, PYTHONPATH="")
    last = done.stderr.rstrip().rpartition("\n")[2]
    # Installed in editable mode it works, and misses the data; else it says what to give.
    installed = ran([sys.executable, "-I", "-c", "import capsnmt"], PYTHONPATH="").returncode == 0
    assert ("batch size" if installed else PLUGIN) in last, done.stderr[-300:]


@pytest.mark.nightly  # an interpreter for each stage of a launch
def test_the_installed_package_runs_in_a_checkout_and_records_its_own_arguments(
    prepared: Path, tmp_path: Path
) -> None:
    """The current folder holds another ``capsnmt``, as a clone does after ``pip install .``."""
    (tmp_path / "clone" / "capsnmt").mkdir(parents=True)
    (tmp_path / "clone" / "capsnmt" / "__init__.py").write_text("raise ImportError('hidden')\n")
    row = arguments(prepared, tmp_path)
    installed = tmp_path / "program"
    imported = "import sys\nfrom capsnmt.launch.__main__ import main\n"
    installed.write_text(f"{imported}sys.exit(main({row}))\n")
    done = ran([sys.executable, installed, "other", "arguments"], tmp_path / "clone")
    if sys.version_info < (3, 11):  # it cannot leave the current folder out
        is_refusal(done.returncode, done.stderr, "./capsnmt", "in another folder")
        assert not (tmp_path / "runs").exists()
        return
    assert done.returncode == 0, done.stderr[-3000:]
    assert "BLEU" in done.stdout
    config = json.loads((tmp_path / "runs/row/seed-1/config.json").read_text("utf-8"))
    assert config["command"][1:3] == row[:2]
    assert "other" not in config["command"]


def test_the_readme_names_the_error_without_the_plugin(
    data: Path, trained: Dict[str, Path]
) -> None:
    done = command("fairseq_cli.generate", data, "--cpu", "--path", trained["everything"])
    assert done.returncode == 1
    readme = (REPO / "README.md").read_text("utf-8")
    (sentence,) = re.findall(r"unrelated error: ([^.]*)\.", readme)
    error = done.stderr.strip().rpartition("\nTraceback")[2]
    assert any(name in error for name in re.findall(r"`(.*?)`", sentence)), error[-3000:]


def test_a_recipe_is_looked_for_beside_its_row_or_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Launch, launch: Launch
) -> None:
    write_sources(tmp_path / "rows")
    row = tmp_path / "rows" / "tiny.yaml"
    row.write_text(row.read_text("utf-8").replace(f"{tmp_path}/rows/recipe", "recipe"), "utf-8")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    named = ("--set", "data.recipe=../rows/recipe.yaml")
    for folder, chosen in {"written": (), "named": named}.items():
        written = ("--write-config", f"../new/{folder}/tiny.yaml")
        launch("--config", "../rows/tiny.yaml", *chosen, *written)
    monkeypatch.chdir(tmp_path)
    for row in ("rows/tiny.yaml", "new/written/tiny.yaml", "new/named/tiny.yaml"):
        (words,) = re.findall(r"-m capsnmt\.corpora (.*)", plan("--config", row, "--cpu"))
        assert Path(shlex.split(words)[0]).samefile("rows/recipe.yaml")


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from capsnmt.report.__main__ import main
sys.exit(main())
"""


@pytest.mark.system
def test_a_report_of_a_folder_of_any_bytes_needs_neither_torch_nor_checkpoints(
    launched: Path, tmp_path: Path
) -> None:
    runs = tmp_path / os.fsdecode(b"runs-\xff")
    shutil.copytree(launched / "runs", runs)
    for checkpoint in runs.rglob("*.pt"):
        checkpoint.unlink()
    printed([sys.executable, "-c", WITHOUT_TORCH, runs, "--output", tmp_path / "report"])
    log = (runs / "row" / "seed-1" / "console.log").read_text("utf-8")
    (logged,) = set(re.findall(r"num\. shared model params: ([\d,]+)", log))
    assert f"| {logged} |" in (tmp_path / "report" / "report.md").read_text("utf-8")
