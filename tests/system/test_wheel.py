"""The wheel has all that the commands need: its files, and the main job from an empty folder."""

from __future__ import annotations

import configparser
import json
import os
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import List

import pytest

from tests.commands import environment
from tests.corpora.miniatures import MINIATURES, recipe_for
from tests.support import REPO

# on one host: pip builds a wheel of Python files the same way on both
pytestmark = [pytest.mark.system, pytest.mark.one_host]

ROW = """
extends: iwslt15_en_vi/baseline
arch: transformer_em_routing_tiny
data: {{recipe: {recipe}}}
batch: {{tokens-per-update: 256, max-tokens: 256}}
train:
  warmup-updates: 2
  encoder-layers: 2
  decoder-layers: 1
  encoder-embed-dim: 16
  decoder-embed-dim: 16
  save-interval-updates: 1
  keep-interval-updates: 2
  log-interval: 1
average: {{last-updates: 2}}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of a copy of the tree because a build leaves files in it."""
    folder = tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, tracked.split("\0")):
        source, copy = REPO / name, folder / "tree" / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(folder / "tree")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(folder.glob("capsnmt-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The wheel's content in a folder, with a script for each command as pip makes it."""
    folder = wheel.parent / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (folder / "bin").mkdir()
    for name, target in commands(folder).items():
        module, function = target.split(":")
        (folder / "bin" / name).write_text(
            f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
    return folder


def commands(folder: Path) -> dict:
    """The commands that the wheel declares."""
    parser = configparser.ConfigParser()
    parser.read(next(folder.glob("*.dist-info")) / "entry_points.txt")
    return dict(parser["console_scripts"])


def test_it_has_every_module_configuration_and_recipe_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = {
        f"capsnmt/{path.relative_to(REPO / 'capsnmt').as_posix()}"
        for suffix in ("py", "j2")
        for path in (REPO / "capsnmt").rglob(f"*.{suffix}")
    }
    resources = {
        f"capsnmt/{kind}/{path.relative_to(REPO / folder).as_posix()}"
        for kind, folder in (("configs", "configs"), ("recipes", "data_prep/recipes"))
        for path in (REPO / folder).rglob("*.yaml")
    }
    assert names == package | resources


def test_every_command_exists(installed: Path) -> None:
    declared = commands(installed)
    assert set(declared) >= {
        f"capsnmt-{name}" for name in ("prepare", "run", "evaluate", "report", "average")
    }
    for target in declared.values():
        module, function = target.split(":")
        assert callable(getattr(import_module(module), function))


def test_the_main_job_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()

    def run(command: str, *arguments: object) -> str:
        words: List[str] = [sys.executable, str(installed / "bin" / command), *map(str, arguments)]
        done = subprocess.run(
            words,
            cwd=folder,
            env={**environment(), "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    files = MINIATURES["iwslt15_en_vi"]()
    archives = tmp_path / "archives"
    archives.mkdir()
    for name, content in files.items():
        (archives / name).write_bytes(content)
    recipe = recipe_for("iwslt15_en_vi", files, tmp_path)
    row = folder / "configs" / "iwslt15_en_vi" / "mine.yaml"
    row.parent.mkdir(parents=True)
    row.write_text(ROW.format(recipe=recipe))
    run("capsnmt-prepare", recipe, "--output", "prepared", "--local", archives)
    data = ("--prepared", "prepared", "--data", archives)
    job = ("--cpu", "--threads", 1, "--max-update", 2, "--output", "runs")
    run("capsnmt-run", "--config", "iwslt15_en_vi/mine", *job, *data)
    run("capsnmt-report", "runs", "--output", "page")
    assert (folder / "page" / "report.md").stat().st_size
    output = next((folder / "runs" / "mine" / "seed-1").glob("**/*generate*"))
    run("capsnmt-evaluate", output, "--json", "scores.json")
    checkpoints = next((folder / "runs").rglob("checkpoint_last.pt")).parent
    run("capsnmt-average", checkpoints, "--last-updates", 2, "--output", "average.pt")
    scores = json.loads((folder / "scores.json").read_text())
    recorded = json.loads(next((folder / "runs").rglob("config.json")).read_text())
    assert scores["systems"]
    assert recorded["row"] == "mine"
    # nothing of the checkout was used
    assert str(REPO) not in json.dumps(recorded)
    assert os.listdir(folder / "configs" / "iwslt15_en_vi") == ["mine.yaml"]
