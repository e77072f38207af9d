"""A command does what its page says, from wherever it is called."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Tuple

import pytest

from tests.faults import launched as small_row
from tests.faults.refusals import is_refusal, run
from tests.interpreter import ran
from tests.support import PLUGIN, REPO

# the command lines of both hosts are the same code; at night both run them
pytestmark = [pytest.mark.system, pytest.mark.one_host]
LIBRARY = "tests.faults.programs:load"


@pytest.mark.parametrize(
    ("setting", "words"),
    [("bean=3", ("bean", "beam")), ("beam=0", ("beam", "0", "1 or more"))],
)
def test_a_bad_setting_of_from_pretrained_is_one_line(
    setting: str, words: Tuple[str, ...], world: Path, tmp_path: Path
) -> None:
    done = run(tmp_path, LIBRARY, world / "runs" / "plain" / "seed-1", setting)
    is_refusal(done.returncode, done.stderr, *words, status=1)


def test_a_run_with_relative_paths_is_translated_from_any_folder(
    world: Path, tmp_path: Path
) -> None:
    run_folder = world / "runs" / "plain" / "seed-1"
    done = run(tmp_path, "capsnmt.translate", run_folder, stdin="A man .\n")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("\n") == 1


def test_a_run_with_relative_paths_is_analysed_from_any_folder(world: Path, tmp_path: Path) -> None:
    """Seeds that are named one by one are those of a row; no backend is needed, nor a terminal."""
    done = run(
        *(tmp_path, "capsnmt.analysis", *(world / f"runs/plain/seed-{seed}" for seed in (1, 2))),
        *("--output", "out", "--only", "attention", "--sentences", "2", "--device", "cpu"),
        *("--browser-sentences", "0", "--ablation-sentences", "0"),
        variables={"MPLBACKEND": "nonsense"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "out" / "analysis.html").read_text("utf-8")
    assert {"plain-seed-1", "plain-seed-2"} <= set(re.findall(r"plain-seed-\d", page))
    assert list((tmp_path / "out" / "figures").iterdir())
    assert "%|" not in done.stderr  # a log has no progress bars
    assert "\r" not in done.stderr


@pytest.mark.parametrize("command", ["fairseq-validate", "from_pretrained", "capsnmt-translate"])
def test_a_classifier_is_loaded_or_refused_in_one_line(
    command: str, world: Path, classifier: Path, tmp_path: Path
) -> None:
    checkpoint = classifier / "checkpoint_last.pt"
    if command == "fairseq-validate":
        done = run(
            *(tmp_path, "fairseq_cli.validate", classifier / "data", "--user-dir", PLUGIN),
            *("--task", "logical_inference", "--path", checkpoint, "--cpu", "--batch-size", "8"),
        )
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        assert done.returncode == 0, done.stderr[-3000:]
        return
    if command == "from_pretrained":
        given = ["checkpoint_file=checkpoint_last.pt", f"data_name_or_path={classifier / 'data'}"]
        done = run(tmp_path, LIBRARY, classifier, *given)
    else:
        done = run(tmp_path, "capsnmt.translate", checkpoint, "--data", world / "runs" / "data")
    words = ("checkpoint_last.pt", "logical_inference", "capsnmt.sentences.evaluate")
    status = 1 if command == "from_pretrained" else 2
    is_refusal(done.returncode, done.stderr, *words, status=status)


def test_hydra_takes_a_switch_as_the_page_spells_it(tmp_path: Path) -> None:
    page = (REPO / "docs" / "launch.md").read_text("utf-8")
    (switch,) = re.findall(r"`(\S*model\.head_aggregation=em)`", page)
    done = run(
        *(tmp_path, "fairseq_cli.hydra_train", "--config-dir", REPO / "configs" / "hydra"),
        *("--config-name", "wmt14_en_de_li2019_effective", f"common.user_dir={PLUGIN}"),
        *("task.data=data", switch, "--cfg", "job"),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "head_aggregation: em" in done.stdout


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
    assert "batch size" in last or str(Path(PLUGIN)) in last, done.stderr[-300:]


@pytest.mark.nightly  # an interpreter for each stage of a launch
def test_the_installed_package_runs_in_a_checkout_and_records_its_own_arguments(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The current folder holds another ``capsnmt``, as a clone does after ``pip install .``."""
    (tmp_path / "clone" / "capsnmt").mkdir(parents=True)
    (tmp_path / "clone" / "capsnmt" / "__init__.py").write_text("raise ImportError('hidden')\n")
    row = list(map(str, small_row.arguments(small_row.prepared(tmp_path_factory), tmp_path)))
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


SCRIPTS = sorted(
    path.stem
    for path in (REPO / "scripts").glob("*.sh")
    if path.read_text("utf-8").startswith("#!")
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_help_and_installs_nothing(name: str, tmp_path: Path) -> None:
    """It is in a checkout without an environment, and finds neither Python nor apt-get."""
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "cat", "dirname", "readlink", "sed"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    copied = tmp_path / "checkout" / "scripts"
    copied.mkdir(parents=True)
    for path in (REPO / "scripts").glob("*.sh"):
        (copied / path.name).write_bytes(path.read_bytes())
        (copied / path.name).chmod(0o755)
    (copied.parent / "capsnmt").symlink_to(PLUGIN)
    done = ran(
        [tmp_path / "bin" / "bash", copied / f"{name}.sh", "--help"],
        tmp_path,
        PATH=str(tmp_path / "bin"),
        PYTHON=sys.executable,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert done.stdout.count("\n") > 2, done.stdout
    assert sorted(path.name for path in copied.parent.iterdir()) == ["capsnmt", "scripts"]


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_a_script_refuses_an_unsupported_python(version: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    parts = tuple(map(int, version.split(".")))
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.version_info = {parts}\n")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    done = ran(["bash", REPO / "scripts" / "run_multi30k.sh", "--dry-run"], PYTHON=str(python))
    is_refusal(done.returncode, done.stderr, f"PYTHON={python}", "Python 3.9 to 3.12", status=1)
