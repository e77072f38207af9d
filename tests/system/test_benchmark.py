"""The benchmark measures what its tables claim; no test depends on the speed."""

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest
import torch
from fairseq import utils
from fairseq.trainer import Trainer

from scripts import benchmark, benchmark_end_to_end, benchmark_gpu, check_gpu, workload
from scripts.benchmark_report import Result
from scripts.benchmark_systems import System, system_of
from scripts.paper_rows import PLAIN, load_rows
from tests.commands import TINY as SMALL
from tests.commands import command
from tests.interpreter import environment, ran
from tests.support import REPO

pytestmark = pytest.mark.system

TINY = [
    *("--size", "tiny", "--tokens", "32", "--length", "8", "--vocabulary", "40", "--device", "cpu"),
    *("--sentences", "2", "--beam", "2", "--repeats", "2", "--warmup", "1", "--threads", "1"),
]
ROWS = load_rows()
OFF, HEADS = "wmt14_en_de/baseline", "wmt14_en_de/li2019_em_enc_self"
SETUP = benchmark.setup_of(benchmark.parse_arguments(TINY))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Dict[str, Result]:
    """What the benchmark has measured, by the names of the systems."""
    found: Dict[str, Result] = {}
    measure = benchmark.measure

    def measuring(system: System, *given: Any) -> Result:
        return found.setdefault(system.name, measure(system, *given))

    monkeypatch.setattr(benchmark, "measure", measuring)
    return found


@pytest.mark.nightly  # with every commit the tests below check work and floors
def test_every_phase_of_stock_ours_and_the_floor_is_measured(
    measured: Dict[str, Result], capsys: pytest.CaptureFixture
) -> None:
    names = [OFF, HEADS]
    benchmark.main([*TINY, "--rows", *names, "--no-memory"])
    assert list(measured) == names
    assert measured[OFF].extra_parameters == 0
    assert measured[HEADS].extra_parameters == 3 * (4 * 128**2 + 4 * 128 + 2 * 128)
    for name, row in measured.items():
        floor = {"floor"} if name == HEADS else set()
        for phase in workload.PHASES:
            found = row.phases[phase]
            assert set(found.seconds) == {"stock", "ours"} | floor
            assert 0 < found.ours.low <= found.ours.median <= found.ours.high
            # our search makes the keys of a sentence once, and not for each hypothesis
            most = 1.1 if phase == "decode" else 1.01
            assert (0.99 if name == OFF else 0.2) < found.work < most
    printed = capsys.readouterr().out
    assert "### Li et al. 2019" in printed
    (line,) = [line for line in printed.splitlines() if line.startswith(f"| {HEADS} |")]
    assert "| 0.62 |" in line  # the paper's 1.20 / 1.92 steps a second
    assert "| 0.99 |" in line


@pytest.mark.parametrize(
    "routing",
    ["--head-aggregation em"]
    + [f"--layer-aggregation {kind}-routing" for kind in ("dynamic", "em")],
)
def test_the_floor_of_routing_is_the_mean_of_the_votes_times_their_activations(
    routing: str,
) -> None:
    built = workload.build(f"--arch {PLAIN}_tiny {routing}", SETUP)
    model = workload.mean_of_votes(built).encoder
    if "head" in routing:
        module, states = model.layers[0].self_attn.out_proj, torch.randn(2, 128)
        hidden = torch.relu(module.hidden(states))
    else:
        (module,) = (m for m in model.modules() if isinstance(m, workload.LayerRouting))
        states = [torch.randn(2, 128) for _ in range(3)]
        hidden = torch.relu(module.hidden(torch.cat(states, -1)))
    votes = module.votes(hidden).unflatten(-1, (-1, 128))
    if routing.endswith("em-routing"):
        votes = votes * module.activation(hidden).sigmoid().unflatten(-1, (3, 128))
    torch.testing.assert_close(module(states), votes.mean(-2))


def test_the_work_is_that_of_the_matrix_products() -> None:
    wide = f"{workload.stock_flags('tiny')} --encoder-ffn-embed-dim 512"
    stock = workload.stock_flags("tiny")
    wider, narrow = (workload.matmul_work(flags, "train", SETUP) for flags in (wide, stock))
    tokens = math.lcm(SETUP.length, workload.MULTIPLE)
    forward = 3 * 2 * (512 - 256) * 128 * tokens * 2  # layers, linear maps, flops a product
    assert wider - narrow == 3 * forward


def test_the_training_step_minimises_the_loss_of_its_flags() -> None:
    """Stock and ours have fairseq's own criterion, a row with disagreement its own."""
    batch = workload.Workload(SETUP).batches[0]
    model = workload.build(f"--arch {PLAIN}_tiny --dropout 0", SETUP).train()

    def loss(flags: str) -> float:
        criterion = workload.trainer_of(model, flags, SETUP).criterion.train()
        assert criterion.eps == 0.1
        summed, sample_size, _ = criterion(model, batch)
        return (summed / sample_size).item()

    stock = loss(workload.stock_flags("tiny"))
    assert loss(f"--arch {PLAIN}_tiny") == stock
    assert loss(ROWS["wmt17_zh_en/li2021_output"].command("tiny")) > stock


def test_ours_is_built_in_bf16_where_that_is_measured() -> None:
    for dtype, precision in (("fp32", "none"), ("bf16", "bf16")):
        setup = dataclasses.replace(SETUP, dtype=dtype)
        model = workload.build(f"--arch {PLAIN}_tiny", setup)
        assert (model.encoder.autocast, model.decoder.autocast) == (precision, precision)
        workload.build(workload.stock_flags("tiny"), setup)  # which has no such switch


def test_batches_have_the_padding_of_real_ones() -> None:
    pad = workload.task(SETUP.vocabulary).source_dictionary.pad()
    for batch in workload.Workload(SETUP).batches:
        inputs, target = batch["net_input"], batch["target"]
        kept = {"source": inputs["src_tokens"].ne(pad), "target": target.ne(pad)}
        assert kept["source"].sum(1).tolist() == inputs["src_lengths"].tolist()
        assert kept["source"][:, -1].all(), "padded on the left"
        assert kept["target"][:, 0].all(), "and on the right"
        assert kept["target"].equal(inputs["prev_output_tokens"].ne(pad))
        assert batch["ntokens"] == kept["target"].sum()
        for real in kept.values():
            assert (real.sum(1) >= real.size(1) * 3 // 4).all()
            assert real.sum(1).max() == real.size(1)
    work = workload.Workload(SETUP)
    counts = [each["ntokens"] for each in work.batches]
    assert work.tokens("train") == sum(counts) / len(counts)  # as fairseq's words per second


def test_updates_are_those_of_fairseqs_trainer_but_keep_the_peak_of_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def on_gpu(*given: Any) -> Trainer:
        made = Trainer(*given)
        made.cuda, made.cuda_env = True, SimpleNamespace(total_memory_in_GB=1.0)
        return made

    forgotten: List[bool] = []
    monkeypatch.setattr(workload, "Trainer", on_gpu)
    monkeypatch.setattr(utils, "move_to_cuda", lambda sample: sample)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (6, 0))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: forgotten.append(True))
    flags = f"--arch {PLAIN}_tiny --dropout 0 --lr 0.01"
    trainer = workload.trainer_of(workload.build(flags, SETUP), flags, SETUP)
    assert isinstance(trainer, Trainer)
    assert trainer.cfg.optimization.clip_norm == 1
    work = workload.Workload(SETUP)
    step = work.training_step(trainer)
    losses = [float(step()["loss"]) for _ in range(3 * len(work.batches))]
    assert losses[-1] < losses[0]
    assert not forgotten


PARTS = """
import sys, time
from scripts import harness

def part(name, device):
    print("says", name)
    harness.record(ok=name != "wrong", found=len(name))
    if name == "dies":
        sys.exit("it has died")
    if name in ("hangs", "waits"):
        time.sleep(600)

def parts(device):
    return {f"a {name}": 3.0 if name == "hangs" else 600.0 for name in NAMES}

harness.run_script(lambda: harness.run_parts("doc", {"a": part}, parts, 1, lambda _: 1, str))
"""
# all that they ask of torch, which takes seconds to import in each process
TORCH = """
__version__ = "1"
float32 = float16 = bfloat16 = None
get_num_threads, set_num_threads = (lambda: 1), print
"""


def with_parts(folder: Path) -> Path:
    """Make a checkout with one script more, and return that."""
    for name in ("capsnmt", "scripts"):
        shutil.copytree(REPO / name, folder / name)
    (folder / "torch.py").write_text(TORCH, "utf-8")
    return folder / "scripts" / "work.py"


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_parts_that_run(signum: int, status: int, tmp_path: Path) -> None:
    """They are in sessions of their own: it was waited for them, or they were left behind."""
    with_parts(tmp_path).write_text(PARTS.replace("NAMES", '["waits", "right"]'), "utf-8")
    words = [sys.executable, "-m", "scripts.work", "--device", "cpu", "--output", "out"]
    variables = {**environment(), "PYTHONPATH": str(tmp_path)}
    records, end = tmp_path / "out" / "records.jsonl", time.monotonic() + 60
    process = subprocess.Popen(words, cwd=tmp_path, env=variables)
    while not (records.exists() and records.read_text("utf-8")) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signum)
    assert process.wait(30) == status
    *_, last = map(json.loads, records.read_text("utf-8").splitlines())
    assert (last["part"], last["ok"]) == ("a waits", False)  # and the next one is not begun


def test_parts_go_on_after_failures_and_resume(tmp_path: Path) -> None:
    program = with_parts(tmp_path)

    def run(names: List[str], limit: str = "unlimited") -> Any:
        program.write_text(PARTS.replace("NAMES", repr(names)), "utf-8")
        words = [sys.executable, "-m", "scripts.work", "--device", "cpu"]
        words += ["--output", tmp_path / "out"]
        return ran(
            ["sh", "-c", f'ulimit -f {limit}; exec "$@"', "sh", *words],
            tmp_path,
            PYTHONPATH=str(tmp_path),
        )

    first = run(["dies", "hangs", "right"])
    assert first.returncode == 1
    assert [line[:2] for line in first.stdout.splitlines()] == ["!!", "!!", "ok"]
    assert "it has died" in first.stdout
    assert "2 of 3 parts: a dies, a hangs" in first.stderr
    assert "[a right] says right" in (tmp_path / "out" / "log.txt").read_text("utf-8")
    again = run(["right", "wrong"])
    assert again.returncode == 1
    assert [line[:2] for line in again.stdout.splitlines()] == ["--", "!!"]
    assert "'found': 5" in again.stdout
    assert {*os.listdir(tmp_path / "out")} == {"records.jsonl", "log.txt", "report.md"}
    records = tmp_path / "out" / "records.jsonl"
    kept = records.read_text("utf-8")
    assert run(["right"], limit="0").returncode  # as on a disk that is full
    assert records.read_text("utf-8") == kept
    before = kept.replace("torch", "another torch")
    records.write_text(before, "utf-8")
    refused = run(["right"])
    assert refused.returncode == 2
    assert "has records of" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert records.read_text("utf-8") == before


def test_a_check_of_a_gpu_goes_on_where_a_precision_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    setup_of = check_gpu.setup_of
    monkeypatch.setattr(check_gpu, "setup_of", lambda device, dtype: setup_of("cpu", dtype))
    monkeypatch.setattr(check_gpu, "UPDATES", 1)
    monkeypatch.setattr(check_gpu, "PRECISIONS", {"fp16": "--fp16", "fp32": ""})
    check_gpu.trained("layers, dense", "cuda")
    (refused,) = capsys.readouterr().out.splitlines()  # and fp32 is as it should be
    assert '"refused": "--layer-aggregation dense and --fp16' in refused


def test_spans_that_fairseq_names_are_no_work_of_a_gpu() -> None:
    gpu, cpu = torch.autograd.DeviceType.CUDA, torch.autograd.DeviceType.CPU
    kernel, span, host = (
        SimpleNamespace(device_type=device, is_user_annotation=named)
        for device, named in ((gpu, False), (gpu, True), (cpu, True))
    )
    assert benchmark_gpu.work_of_gpu([host, span, kernel]) == [kernel]


def test_a_row_is_compared_with_stock_of_its_size_and_its_baselines_heads() -> None:
    row = ROWS["wmt14_en_de/li2021_both_big_8_heads"]
    heads = "--encoder-attention-heads 8 --decoder-attention-heads 8"
    for size in ("big", "tiny"):
        system = system_of(row, size)
        assert system.flags.startswith(f"--arch {PLAIN}_{size} ")
        assert heads in system.flags
        assert system.stock == f"{workload.stock_flags(size)} {heads}"
    assert system_of(row) == system_of(row, "big")


def test_complete_trainings_of_stock_and_ours_take_turns(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: Dict[str, Result]
) -> None:
    """Their speed is all words over all seconds of the second half."""
    windows = [
        {"num_updates": str(n), "wpb": str(wpb), "wps": str(wps)}
        for n, wpb, wps in ((2, 900, 1), (4, 100, 50), (6, 300, 100))
    ]
    log = "".join(
        f"2026-01-01 00:00:00 | INFO | train_inner | {json.dumps(each)}\n" for each in windows
    )
    assert benchmark_end_to_end.words_per_second(f"other line\n{log}", 6) == 400 / (2 + 3)
    commands: List[List[str]] = []

    def run(words: List[str], environment: Dict[str, str]) -> str:
        commands.append(words)
        done = command(words[2], *words[3:], *SMALL)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout + done.stderr

    monkeypatch.setattr(benchmark_end_to_end, "output_of", run)
    monkeypatch.chdir(tmp_path)
    benchmark.main(
        [
            *("--end-to-end", str(corpus / "bin"), "--updates", "4", "--repeats", "1"),
            *("--tokens", "64", "--length", "8", "--vocabulary", "40", "--device", "cpu"),
            *("--size", "tiny", "--threads", "1"),
            *("--system", f"ours: --arch {PLAIN}_tiny --optimizer fused_adam"),
        ]
    )
    stock, ours = commands
    assert not list(tmp_path.glob("checkpoints")), "it leaves nothing behind"
    assert "--user-dir" not in stock
    assert {"transformer", "adam"} <= {*stock}
    assert {"--user-dir", f"{PLAIN}_tiny", "fused_adam"} <= {*ours}
    phase = measured["ours"].phases["train"]
    speeds = phase.tokens_per_second
    assert phase.ours.median == speeds["ours"] / speeds["stock"]
