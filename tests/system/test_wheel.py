"""The wheel has every file that its commands need; ``scripts/extras_test.sh`` runs them from it."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

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
