"""A library call leaves the process as it is; only a command sets what belongs to its process."""

import logging
import os
import platform
import shutil
import threading
from pathlib import Path
from typing import Any, List

import pytest
import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch._subclasses import FakeTensorMode

from capsnmt.launch.__main__ import main as plan
from capsnmt.machine import keep_freed_memory
from capsnmt.routing import em_routing, record_routing
from capsnmt.translate.__main__ import main as translate
from tests.commands import command, training
from tests.faults.surroundings import MEGABYTES
from tests.interpreter import PYTHON, ran
from tests.launch.conftest import launch
from tests.models.test_limits import stock
from tests.small_row import SMALL
from tests.support import HEADS, PAD, PLUGIN, TASK, batch, build, needs_compiler, sentences

__all__ = ["launch"]  # a fixture
on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")


def kept_by(module: str, *arguments: object) -> int:
    """Run a command that must succeed; return the megabytes of a freed tensor that it keeps."""
    done = command("tests.faults.surroundings:observed", module, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stderr.splitlines()[-1])


@on_glibc
@pytest.mark.one_host  # here and below: the memory is the C library's
def test_a_model_that_trains_or_decodes_leaves_malloc_alone() -> None:
    assert kept_by("tests.faults.surroundings:use_a_model") < MEGABYTES / 4


@on_glibc
@pytest.mark.system
@pytest.mark.one_host
def test_commands_keep_the_memory_of_large_tensors(prepared: Path, tmp_path: Path) -> None:
    trains = training(prepared / "bin", tmp_path, "capsnmt_transformer_tiny", 1)
    left = {"fairseq-train": kept_by("fairseq_cli.train", *trains)}
    # fairseq-interactive prepares its model as this does
    decodes = [prepared / "bin", "--user-dir", PLUGIN, "--cpu", "--beam", "1", "--batch-size", "4"]
    decodes += ["--path", tmp_path / "checkpoint_last.pt"]
    left["fairseq-generate"] = kept_by("fairseq_cli.generate", *decodes)
    for name, kept in left.items():
        assert kept > 3 * MEGABYTES / 4, name


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_the_users_settings_of_malloc_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1000000" if "MALLOC" in name else "glibc.malloc.arena_max=1")
    assert not keep_freed_memory.__wrapped__("cpu")


@on_glibc
@needs_compiler
def test_a_run_on_a_cpu_has_the_tcmalloc_of_the_system_unless_one_is_chosen(tmp_path: Path) -> None:
    name = "libtcmalloc_minimal.so"
    compiler = [*os.environ.get("CXX", "c++").split(), "-shared", "-x", "c++", "/dev/null"]
    ran([*compiler, f"-Wl,-soname,{name}.4", "-o", tmp_path / name])
    with_space = tmp_path / "a folder"
    with_space.mkdir()
    shutil.copy(tmp_path / name, with_space)
    asks = [PYTHON, "-c", "from capsnmt.machine import tcmalloc; print(*tcmalloc().values())"]
    for folder, chosen in ((".", {}), (".", {"LD_PRELOAD": ""}), (with_space, {})):
        found = {"LD_LIBRARY_PATH": str(folder), "LIBRARY_PATH": str(folder)}
        done = ran(asks, tmp_path, **found, **chosen)
        assert done.returncode == 0, done.stderr
        if folder == ".":
            assert (name in done.stdout) == (not chosen)
    given = [PYTHON, "-m", "capsnmt.launch", "--config", "multi30k/baseline", "--cpu", "--dry-run"]
    done = ran(given, tmp_path, LD_LIBRARY_PATH=".", LIBRARY_PATH=".")
    assert f"LD_PRELOAD={name}" in done.stdout


@pytest.mark.parametrize("main", [plan, translate])
def test_a_command_in_process_leaves_logging_as_it_was(main: Any, tmp_path: Path) -> None:
    names = (None, "fairseq", "capsnmt")

    def state() -> List[object]:
        loggers = [logging.getLogger(name) for name in names]
        return [logging.root.manager.disable, *((each.level, each.handlers[:]) for each in loggers)]

    before = state()
    assert main([str(tmp_path / "none")]) == 2
    (tmp_path / "row.yaml").write_text(SMALL, "utf-8")
    row = ["--config", str(tmp_path / "row.yaml"), "--cpu", "--output", str(tmp_path / "runs")]
    plan([*row, "--prepared", str(tmp_path), "--dry-run"])
    assert state() == before


@needs_compiler
def test_a_thread_records_its_routing_while_another_compiles() -> None:
    recorded: List[int] = []

    def record() -> None:
        with record_routing() as records:
            em_routing(torch.ones(4, 8, 16, 4), torch.zeros(16), torch.zeros(16), iterations=2)
        recorded.append(len(records))

    def in_a_thread(graph: Any, _: Any) -> Any:
        thread = threading.Thread(target=record)
        thread.start()
        thread.join()
        return graph

    torch.compile(lambda number: number + 1, backend=in_a_thread)(torch.ones(1))
    assert recorded == [1]


def test_an_encoding_is_reordered_where_it_is() -> None:
    """The device ``meta`` stands for every device that is neither a CPU nor an NVIDIA GPU."""
    encoder = build("capsnmt_transformer", *HEADS).encoder
    tokens = batch(sentences(3, 2, 4), left_pad=True)
    encoded = encoder(tokens, tokens.ne(PAD).sum(1))
    encoded = encoder.reorder_encoder_out(encoded, torch.tensor([0, 0, 1, 1, 2, 2]))  # a beam of 2
    moved = {name: [part.to("meta") for part in parts] for name, parts in encoded.items()}
    for order in ([1, 0, 3, 2, 4, 4], [2, 2, 4, 5]):  # a step of it; a sentence has ended
        moved = encoder.reorder_encoder_out(moved, torch.tensor(order, device="meta"))
        assert {part.device.type for parts in moved.values() for part in parts} == {"meta"}


def test_only_our_models_get_our_beam_search() -> None:
    """Programs that use fairseq beside the plugin, and their other models, keep fairseq's own."""
    task = TranslationTask(TranslationConfig(), TASK.source_dictionary, TASK.target_dictionary)
    ours, own = (
        task.build_generator([model], GenerationConfig())
        for model in (build("capsnmt_transformer"), stock())
    )
    assert type(own) is SequenceGenerator
    assert SequenceGenerator.__module__ == "fairseq.sequence_generator"
    assert type(ours) is not SequenceGenerator


@pytest.mark.skipif(
    torch.__version__.startswith("2.2."), reason="torch 2.2 asks the driver even for fake tensors"
)
@pytest.mark.filterwarnings("error")
def test_auto_takes_no_kernel_that_no_gpu_has_run() -> None:
    """Fake tensors are on a GPU without one: torch's own operators have results, kernels fail."""
    with FakeTensorMode(), torch.no_grad():
        votes = torch.empty(4, 8, 16, 4, device="cuda")
        beta = torch.empty(16, device="cuda")
        assert em_routing(votes, beta, beta, 3).shape == (4, 16, 4)
