"""The documentation site is built without a warning, and its API has the mechanisms."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.interpreter import ran
from tests.support import REPO


@pytest.mark.nightly  # half a minute
@pytest.mark.one_host  # Sphinx of the constraints needs Python 3.11
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(REPO / "docs", docs, ignore=shutil.ignore_patterns("api"))
    (tmp_path / "capsnmt").symlink_to(REPO / "capsnmt")
    site = tmp_path / "site"
    done = ran([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", docs, site])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "em_routing" in (site / "api" / "capsnmt.routing.html").read_text("utf-8")
