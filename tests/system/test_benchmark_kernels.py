"""The measurements of the kernels, and the command that measures everything on a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Dict

import pytest
import torch

from scripts import benchmark_kernels
from scripts.benchmark_kernels import OPERATORS, SHAPES, moved, passes
from tests.commands import environment
from tests.support import REPO

GPU = REPO / "scripts" / "benchmark_gpu.sh"


def gpu(*flags: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(GPU), *flags],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.operator}-{shape.title}")
def test_what_is_timed_is_the_operator_and_its_gradient(
    shape: benchmark_kernels.Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Dict[bool, torch.Tensor] = {}
    operator = OPERATORS[shape.operator]

    def spy(votes: torch.Tensor, iterations: int, backend: str) -> torch.Tensor:
        made[votes.requires_grad] = votes
        return operator(votes, iterations, backend)

    monkeypatch.setitem(OPERATORS, shape.operator, spy)
    votes = torch.randn(2, shape.inputs, shape.capsules, shape.dimension)
    for run in passes(shape, votes, 3, "eager"):
        run()
    assert made[False] is votes
    gradient = made[True].grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


def test_the_floor_counts_each_tensor_once() -> None:
    votes, capsules = torch.zeros(4, 8, 16, 1), torch.zeros(4, 16, 1)
    read, written = 4 * votes.numel(), 4 * capsules.numel()
    assert moved(votes, capsules) == {
        "forward": read + written,
        "forward and backward": 3 * read + 2 * written,
    }


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


def test_without_a_gpu_it_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "results"
    done = gpu("--output", str(output), PYTHON="no-such-python")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: no-such-python: torch finds no GPU: set PYTHON to the interpreter of an "
        "environment that does"
    ]
    assert not output.exists()


def test_an_unknown_flag_is_one_line() -> None:
    done = gpu("--rowz", "x")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
