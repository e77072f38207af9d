"""The order of the tests, and what several of them share."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


# The tests of packages that load neither torch nor fairseq, and those of the analysis, which
# tests/system/test_analyse.py runs on both hosts.
ONE_HOST = ("analysis", "corpora", "evaluation", "report")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Optional[bool]:
    """Leave out packages of one host where tests marked ``one_host`` are left out."""
    if "not one_host" not in config.option.markexpr or collection_path.name not in ONE_HOST:
        return None
    return True if collection_path.parent == Path(__file__).parent else None


def pytest_configure() -> None:
    """Collect no garbage while modules are imported: nearly a third of that time would be spent."""
    gc.disable()


def pytest_unconfigure() -> None:
    """End what commands were forked from: a worker's process does not end as others do."""
    commands = sys.modules.get("tests.commands")
    if commands is not None:
        commands.servers.close()


def pytest_runtestloop() -> None:
    """Collect garbage again, but not what has been imported."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Distribute the tests over parallel workers, the long ones first, those of a file together.

    ``--dist worksteal`` gives each worker a contiguous part of the list at the start. In file order
    one worker would get all long tests, and the others would be idle at the end. The tests of a
    file share browsers, trained models and other fixtures.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    files: Dict[Path, List[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("system"):
            files.setdefault(item.path, []).append(item)
    parts: List[List[pytest.Item]] = [[] for _ in range(workers)]
    for file in sorted(files.values(), key=len, reverse=True):
        min(parts, key=len).extend(file)
    short = iter([item for item in items if not item.get_closest_marker("system")])
    share = -(-len(items) // workers)
    for part in parts:
        part += itertools.islice(short, max(0, share - len(part)))
    items[:] = [item for part in parts for item in part]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small text and, in ``bin``, its data; made once for all workers."""
    from tests.commands import made_once, write_corpus  # which import torch and fairseq

    return made_once(tmp_path_factory, "corpus", write_corpus)


@pytest.fixture(scope="session")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """Checkpoints of the small corpus, made once for all workers.

    ``everything`` has all mechanisms at once; ``stock`` is of fairseq's Transformer, pre-norm, for
    fairseq 0.12.2's post-norm encoder cannot be evaluated on torch 2.2 ("Mask Type").
    """
    from tests.commands import EVERYTHING, made_once, train

    def make(folder: Path) -> None:
        arch, *flags = EVERYTHING
        train(corpus / "bin", folder / "everything", arch, 2, *flags)
        small = ["--encoder-attention-heads", "4", "--decoder-layers", "2"]
        norm = ["--encoder-normalize-before", "--decoder-normalize-before"]
        train(corpus / "bin", folder / "stock", "transformer_tiny", 4, *small, *norm)

    folder = made_once(tmp_path_factory, "trained", make)
    return {name: folder / name / "checkpoint_last.pt" for name in ("everything", "stock")}


@pytest.fixture
def bf16_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every CPU compute in bf16: torch emulates the instructions that it has not."""
    from capsnmt.models import precision
    from capsnmt.modules import autocast

    cached = autocast.bf16_obstacle, precision.evaluates_in_bf16
    for function in cached:
        function.cache_clear()
    monkeypatch.setattr(autocast, "cpu_flags", lambda: ["fpu", "amx_bf16"])
    yield
    for function in cached:
        function.cache_clear()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium: that of ``CAPSNMT_CHROMIUM``, the system's, or playwright's own."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        pytest.skip("NO BROWSER TEST: playwright is not installed (pip install playwright)")
    installed = [path for path in map(shutil.which, BROWSERS) if path]
    found = os.environ.get("CAPSNMT_CHROMIUM") or next(iter(installed), None)
    with sync_playwright() as playwright:
        try:
            if not Path(found or playwright.chromium.executable_path).exists():
                raise Error("no browser is installed")  # playwright would leave folders of its own
            # no sandbox: tests may run as root, and the page is ours
            started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except Error as error:
            pytest.skip(
                "NO BROWSER TEST: no Chromium was found or it does not start (apt-get install "
                f"chromium-headless-shell, or set CAPSNMT_CHROMIUM): {str(error).splitlines()[0]}"
            )
        yield started
        started.close()
