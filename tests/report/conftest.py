"""Finished runs, for the tests of the report."""

import shutil
from pathlib import Path

import pytest

from tests.report.finished_runs import write_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a baseline and a routed run; tests that change it take a copy."""
    output = tmp_path_factory.mktemp("output")
    write_run(output, "baseline")
    write_run(output, "em_routing", "baseline")
    return output


@pytest.fixture
def output(finished: Path, tmp_path: Path) -> Path:
    """A copy of the same; the recorded path of its data is still that of the original."""
    shutil.copytree(finished, tmp_path / "output")
    return tmp_path / "output"
