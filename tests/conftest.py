"""The order of the tests, and what several of them share."""

import gc
import importlib
import itertools
import locale
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

from tests.interpreter import server, servers
from tests.real_data import library

# what a shell tells other programs: how they log, print and allocate memory
OF_THE_SHELL = ("FORCE_COLOR", "GLIBC_TUNABLES", "LOGLEVEL", "MALLOC_")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


TESTS = Path(__file__).parent
# Files whose subject is the same on both hosts; at night both run them.
ONE_HOST = (
    # they load neither torch nor fairseq, read text, or run bash, pip and uv
    *("corpora", "evaluation", "pages", "report", "runs", "configs/test_rows.py"),
    *(f"docs/test_{name}.py" for name in ("house", "numbers", "project", "quotes", "tutorials")),
    *("faults/test_installation.py", "sentences/test_data.py"),
    # others launch: translate, sentences/test_classify.py; launch/test_plan.py plans
    *(f"launch/test_{name}.py" for name in ("changes", "classification", "execute", "identity")),
    *(f"launch/test_{name}.py" for name in ("own_data", "slurm")),
    *(f"faults/test_{name}.py" for name in ("lost_data", "lost_work", "pages")),
    *(f"system/test_{name}.py" for name in ("benchmark", "composition", "fuzz", "learning")),
    *(f"system/test_{name}.py" for name in ("results", "scripts")),
    # system/test_analyse.py runs an analysis
    "analysis",
    # tests/frozen/golden has the numbers of every architecture, the same on both hosts
    *("modules", "models/test_graphs.py", "models/test_gpu_work.py"),
    *(f"routing/test_{name}.py" for name in ("backend", "numbers", "operators")),
    *(f"fast/test_{name}.py" for name in ("additions", "cpp", "dropout", "triton")),
)
LEFT_OUT = [TESTS / name for name in ONE_HOST]
assert all(path.exists() for path in LEFT_OUT)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Optional[bool]:
    """Leave out what is of one host where tests marked ``one_host`` are left out."""
    left_out = "not one_host" in config.option.markexpr
    return True if left_out and collection_path in LEFT_OUT else None


def pytest_configure(config: pytest.Config) -> None:
    """Collect no garbage while modules are imported: nearly a third of that time would be spent.

    Random examples are the same each time, and none has a deadline, which load would break.
    What commands are forked from is started here for all workers, which inherit its address.
    """
    for name in [each for each in os.environ if each.startswith(OF_THE_SHELL)]:
        del os.environ[name]
    try:
        locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:  # this machine lacks it, as every bash would say
        os.environ.pop("LC_ALL", None)
    gc.disable()
    with suppress(ImportError):  # of some environments
        hypothesis = importlib.import_module("hypothesis")
        hypothesis.settings.register_profile("commit", deadline=None, derandomize=True)
        hypothesis.settings.load_profile("commit")
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        server()


def pytest_unconfigure() -> None:
    """End what commands were forked from: a worker's process does not end as others do."""
    servers.close()


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


@pytest.fixture(autouse=True)
def seeded() -> None:
    """A test draws the same numbers, whatever ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small text and, in ``bin``, its data; made once for all workers."""
    from tests.commands import made_once, write_corpus  # which import torch and fairseq

    return made_once(tmp_path_factory, "corpus", write_corpus)


@pytest.fixture(scope="session")
def data(corpus: Path) -> Path:
    """The small corpus as fairseq's commands read it."""
    return corpus / "bin"


@pytest.fixture(scope="session")
def prepared(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small corpus as prepared data: the data-bin, the raw test set, and the manifest."""
    from tests.commands import made_once

    def make(folder: Path) -> None:
        shutil.copytree(corpus / "bin", folder / "bin")
        (folder / "raw").mkdir()
        for language in ("en", "de"):
            shutil.copy(corpus / f"test.{language}", folder / "raw" / f"news.{language}")
        manifest = '{"pair": "en-de", "pairs": 48, "subsets": {"valid": "valid", "news": "test"}}'
        (folder / "manifest.json").write_text(manifest, "utf-8")

    return made_once(tmp_path_factory, "prepared", make)


@pytest.fixture(scope="session")
def launched(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, of any bytes, of a launch; its run is ``runs/row/seed-1``."""
    from tests.commands import made_once, succeed
    from tests.small_row import BY_EPOCHS, arguments

    def launch(folder: Path) -> None:
        succeed("capsnmt.launch", *arguments(prepared, folder), *BY_EPOCHS)

    return made_once(tmp_path_factory, os.fsdecode(b"launched-\xff"), launch)


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
def refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """``refused(main, ARG, ...)`` returns the line with which a command is refused.

    Its status is 2, it prints nothing else, and ``tmp_path`` stays as it was.
    """

    def files() -> Dict[Path, bytes]:
        return {path: path.read_bytes() if path.is_file() else b"" for path in tmp_path.rglob("*")}

    def run(main: Callable[[List[str]], int], *arguments: object) -> str:
        before = files()
        capsys.readouterr()
        assert main([*map(str, arguments)]) == 2, arguments
        printed = capsys.readouterr()
        line, *more = printed.err.splitlines()
        assert (printed.out, line[:7], more) == ("", "error: ", [])
        assert files() == before
        return line

    return run


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
    library("playwright")
    from playwright.sync_api import Error, sync_playwright

    installed = [path for path in map(shutil.which, BROWSERS) if path]
    found = os.environ.get("CAPSNMT_CHROMIUM") or next(iter(installed), None)
    with sync_playwright() as playwright:
        try:
            if not Path(found or playwright.chromium.executable_path).exists():
                raise Error("no browser is installed")  # playwright would leave folders of its own
            # no sandbox: tests may run as root, and the page is ours
            started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except Error as error:
            pytest.skip(  # as for SLURM: not every machine can install the program
                "NO BROWSER TEST: no Chromium was found or it does not start (apt-get install "
                f"chromium-headless-shell, or set CAPSNMT_CHROMIUM): {str(error).splitlines()[0]}"
            )
        yield started
        started.close()
