"""The benchmark measures what it says; how fast anything is, no test asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from capsnmt.errors import ConfigurationError
from scripts import benchmark

pytestmark = pytest.mark.system

SMALL = [
    *("--size", "tiny", "--tokens", "32", "--length", "8", "--vocabulary", "40", "--device", "cpu"),
    *("--sentences", "2", "--beam", "2", "--repeats", "2", "--warmup", "1"),
]


def test_every_phase_of_stock_ours_and_the_floor_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    report = tmp_path / "report.json"
    benchmark.main(
        [*SMALL, "--rows", "switches off", "EM, enc-self", "--no-memory", "--json", str(report)]
    )
    off, routed = json.loads(report.read_text("utf-8"))["results"]
    assert off["extra_parameters"] == 0
    assert routed["extra_parameters"] == 3 * (4 * 128**2 + 4 * 128 + 2 * 128)
    for phase in ("train", "forward", "decode"):
        assert set(off["phases"][phase]["seconds"]) == {"stock", "ours"}
        assert set(routed["phases"][phase]["seconds"]) == {"stock", "ours", "floor"}
        ratio = routed["phases"][phase]["ours"]
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    table = capsys.readouterr().out
    assert "| EM, enc-self |" in table
    assert "| 0.63 |" in table


def test_the_floor_is_the_mean_of_the_votes() -> None:
    args = benchmark.parse_arguments(SMALL)
    flags = benchmark.ROWS["EM, enc-self"].flags.format(size="_tiny")
    floor = benchmark.mean_of_votes(benchmark.build(flags, args))
    module = floor.encoder.layers[0].self_attn.out_proj
    heads = torch.randn(3, 2, 128)
    votes = module.votes(torch.relu(module.hidden(heads))).unflatten(-1, (4, 128))
    torch.testing.assert_close(module(heads), votes.mean(-2))


def test_the_rows_carry_the_papers_flags() -> None:
    """Each row's model has the parameters the paper prints for it, at its base size."""
    args = benchmark.parse_arguments(["--device", "cpu", "--vocabulary", "40"])
    stock = benchmark.parameters(benchmark.stock_flags(args), args)
    printed = {"EM, all three": 37.8, "EM, enc-self, layers 1,2 (effective)": 4.2}
    for name, millions in printed.items():
        flags = benchmark.ROWS[name].flags.format(size="")
        assert round((benchmark.parameters(flags, args) - stock) / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--rows", "no such row"], "no such row"),
        (["--tokens", "0"], "--tokens: 0: give 1 or more"),
        (["--system", "no colon"], "--system: 'no colon': give 'NAME: FLAGS'"),
    ],
)
def test_a_bad_flag_is_one_line(flags: list, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as error:
        benchmark.parse_arguments(flags)
    assert len(str(error.value).splitlines()) == 1
