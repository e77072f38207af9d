"""The benchmark measures what its tables claim; no test depends on the speed."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from torch import nn

from capsnmt.cli import ConfigurationError
from scripts import benchmark, workload
from scripts.benchmark_systems import system_of
from scripts.paper_rows import PLAIN, load_rows
from tests.commands import environment
from tests.compiler import needs_compiler
from tests.support import REPO

pytestmark = [pytest.mark.system, pytest.mark.one_host]

TINY = [
    *("--size", "tiny", "--tokens", "32", "--length", "8", "--vocabulary", "40", "--device", "cpu"),
    *("--sentences", "2", "--beam", "2", "--repeats", "2", "--warmup", "1", "--threads", "1"),
]
BRIEF = [*TINY, "--no-memory", "--phases", "forward"]
PLAIN_TINY = f"--arch {PLAIN}_tiny"
LAYERS = "--arch transformer_dlcl_routing_tiny"
ROWS = load_rows()
OFF, HEADS = "wmt14_en_de/baseline", "wmt14_en_de/li2019_em_enc_self"
CAPSULES = "wmt14_en_de/duan2020_capsule"
SETUP = benchmark.setup_of(benchmark.parse_arguments(TINY))


def read(path: Path) -> Dict[str, Dict[str, Any]]:
    return {row["name"]: row for row in json.loads(path.read_text("utf-8"))["results"]}


@pytest.mark.nightly  # with every commit the tests below check work, floors and reports
def test_every_phase_of_stock_ours_and_the_floor_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "report.json"
    names = [OFF, HEADS]
    benchmark.main([*TINY, "--rows", *names, "--no-memory", "--json", str(path)])
    rows = read(path)
    assert list(rows) == names
    assert rows[OFF]["extra_parameters"] == 0
    assert rows[HEADS]["extra_parameters"] == 3 * (4 * 128**2 + 4 * 128 + 2 * 128)
    for name, row in rows.items():
        floor = {"floor"} if name == HEADS else set()
        for phase in ("train", "forward", "decode"):
            assert set(row["phases"][phase]["seconds"]) == {"stock", "ours"} | floor
            ratio = row["phases"][phase]["ours"]
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
            work = row["phases"][phase]["work"]
            assert (0.99 if name == OFF else 0.2) < work < 1.01
    printed = capsys.readouterr().out
    assert "### Li et al. 2019" in printed
    (line,) = [line for line in printed.splitlines() if line.startswith(f"| {HEADS} |")]
    assert "| 0.62 |" in line  # the paper's 1.20 / 1.92 steps a second
    assert "| 0.99 |" in line
    benchmark.main([*TINY, "--rows", *names, "--no-memory", "--json", str(path)])
    assert capsys.readouterr().out == printed, "the file has every number of the tables"


@pytest.mark.parametrize("text", ["[]", "{}", '{"settings": {}, "results": [3]}', "no JSON"])
def test_a_file_that_is_not_a_report_is_refused_and_not_changed(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=r"report\.json"):
        benchmark.main([*BRIEF, "--json", str(path)])
    assert path.read_text("utf-8") == text


def test_the_floor_of_head_aggregation_is_the_mean_of_the_votes() -> None:
    floor = workload.mean_of_votes(workload.build(ROWS[HEADS].command("tiny"), SETUP))
    module = floor.encoder.layers[0].self_attn.out_proj
    heads = torch.randn(3, 2, 128)
    votes = module.votes(torch.relu(module.hidden(heads))).unflatten(-1, (4, 128))
    torch.testing.assert_close(module(heads), votes.mean(-2))


def routed_layers(model: nn.Module) -> workload.LayerRouting:
    (module,) = (m for m in model.encoder.modules() if isinstance(m, workload.LayerRouting))
    return module


@pytest.mark.parametrize("routing", ["dynamic-routing", "em-routing"])
def test_the_floor_of_layer_routing_is_the_mean_of_the_votes_times_their_activations(
    routing: str,
) -> None:
    model = workload.build(f"{LAYERS} --layer-aggregation {routing}", SETUP)
    module = routed_layers(workload.mean_of_votes(model))
    states = [torch.randn(2, 128) for _ in range(3)]
    hidden = torch.relu(module.hidden(torch.cat(states, -1)))
    votes = module.votes(hidden).unflatten(-1, (3, 128))
    if routing == "em-routing":
        votes = votes * module.activation(hidden).sigmoid().unflatten(-1, (3, 128))
    torch.testing.assert_close(module(states), votes.mean(-2))


def test_the_work_is_that_of_the_matrix_products() -> None:
    wide = f"{workload.stock_flags('tiny')} --encoder-ffn-embed-dim 512"
    more = [
        workload.matmul_work(flags, phase, SETUP)
        for flags in (wide, workload.stock_flags("tiny"))
        for phase in ("forward", "train")
    ]
    tokens = math.lcm(SETUP.length, workload.MULTIPLE)
    forward = 3 * 2 * (512 - 256) * 128 * tokens * 2  # layers, linear maps, flops a product
    assert more[0] - more[2] == forward
    assert more[1] - more[3] == 3 * forward


@needs_compiler
@pytest.mark.parametrize("switch", ["--compile", "--routing-backend compiled"])
def test_the_work_of_a_compiled_system_is_that_of_the_eager_one(switch: str) -> None:
    routed = f"{PLAIN_TINY} --head-aggregation em"
    work = [workload.matmul_work(f"{routed} {more}", "train", SETUP) for more in ("", switch)]
    assert work[0] == work[1]


def test_the_training_step_minimises_the_loss_of_its_flags() -> None:
    """Stock and ours have fairseq's own criterion, a row with disagreement its own."""
    batch = workload.Workload(SETUP).batch
    model = workload.build(f"{PLAIN_TINY} --dropout 0", SETUP).train()

    def loss(flags: str) -> float:
        criterion = workload.build_criterion(flags, SETUP).train()
        assert criterion.eps == 0.1
        summed, sample_size, _ = criterion(model, batch)
        return (summed / sample_size).item()

    stock = loss(workload.stock_flags("tiny"))
    assert loss(PLAIN_TINY) == stock
    assert loss(ROWS["wmt17_zh_en/li2021_output"].command("tiny")) > stock


def chosen(*flags: str) -> List[str]:
    args = benchmark.parse_arguments([*BRIEF, *flags])
    return [system.name for system in benchmark.chosen_systems(args)]


def test_systems_are_chosen_by_row_by_paper_and_by_flags() -> None:
    assert chosen("--rows", CAPSULES, HEADS) == [CAPSULES, HEADS]
    assert chosen("--system", "mine: --arch transformer") == ["mine"]
    of_paper = [key for key in chosen() if ROWS[key].paper == "duan2020"]
    assert CAPSULES in of_paper
    assert chosen("--paper", "duan2020", "--rows", HEADS) == [HEADS, *of_paper]


def test_a_row_is_compared_with_stock_of_its_size_and_its_baselines_heads() -> None:
    row = ROWS["wmt14_en_de/li2021_both_big_8_heads"]
    heads = "--encoder-attention-heads 8 --decoder-attention-heads 8"
    for size in ("big", "tiny"):
        system = system_of(row, size)
        assert system.flags.startswith(f"--arch {PLAIN}_{size} ")
        assert heads in system.flags
        assert system.stock == f"{workload.stock_flags(size)} {heads}"
    assert system_of(row) == system_of(row, "big")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--rows", HEADS[:-1]], f"'{HEADS[:-1]}' is not a row: did you mean '{HEADS}'"),
        (["--rows", "?"], "docs/configurations.md lists them"),
        (["--paper", "li2018"], "li2018"),
        (["--tokens", "0"], "--tokens: '0' is not a whole number of at least 1"),
        (["--system", "no colon"], "--system: 'no colon': give 'NAME: FLAGS'"),
        (["--system", "a: --x", "--system", "a: --y"], "'a' is the name of two systems"),
    ],
)
def test_a_bad_flag_is_one_line(flags: list, named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        benchmark.main(flags)
    assert named in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def gpu(*flags: str, **variables: str) -> subprocess.CompletedProcess:
    """Run the command that measures everything on a GPU."""
    return subprocess.run(
        ["bash", str(REPO / "scripts" / "benchmark_gpu.sh"), *flags],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_plan_measures_operators_and_rows_in_each_precision() -> None:
    plan = gpu("--dry-run", "--rows", "wmt14_en_de/baseline", PYTHON="python").stdout.splitlines()
    assert plan[0] == "python -m pytest -q -m cuda tests"
    assert [line.split()[1] for line in plan[1:]] == [
        *["scripts/benchmark_kernels.py"] * 3,
        *["scripts/benchmark.py"] * 4,
    ]
    rows, compiled = plan[4::2], plan[5::2]
    assert all("--rows wmt14_en_de/baseline" in line for line in rows)
    assert all("--arch\\ capsnmt_transformer\\ --compile" in line for line in compiled)
