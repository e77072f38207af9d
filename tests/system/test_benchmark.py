"""The benchmark measures what it says; how fast anything is, no test asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest
import torch
from torch import nn

from capsnmt.errors import ConfigurationError
from scripts import benchmark, workload
from scripts.rows import PLAIN, ROWS, Row, disagreement

pytestmark = pytest.mark.system

TINY = [
    *("--size", "tiny", "--tokens", "32", "--length", "8", "--vocabulary", "40", "--device", "cpu"),
    *("--sentences", "2", "--beam", "2", "--repeats", "2", "--warmup", "1", "--threads", "1"),
]
BRIEF = [*TINY, "--no-memory", "--phases", "forward"]
LAYERS = "--arch transformer_dlcl_routing_tiny"


def read(path: Path) -> Dict[str, Dict[str, Any]]:
    return {row["name"]: row for row in json.loads(path.read_text("utf-8"))["results"]}


def test_every_phase_of_stock_ours_and_the_floor_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "report.json"
    names = ["switches off", "EM, enc-self", "EM routing of layers", "capsule routing"]
    benchmark.main([*TINY, "--rows", *names, "--no-memory", "--json", str(path)])
    rows = read(path)
    assert list(rows) == names
    assert rows["switches off"]["extra_parameters"] == 0
    assert rows["EM, enc-self"]["extra_parameters"] == 3 * (4 * 128**2 + 4 * 128 + 2 * 128)
    for name, row in rows.items():
        floor = {"floor"} if "EM" in name else set()
        for phase in ("train", "forward", "decode"):
            assert set(row["phases"][phase]["seconds"]) == {"stock", "ours"} | floor
            ratio = row["phases"][phase]["ours"]
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
            work = row["phases"][phase]["work"]
            assert (0.99 if name == "switches off" else 0.2) < work < 1.01
    printed = capsys.readouterr().out
    assert "### Li et al. 2019" in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("| EM, enc-self |")]
    assert "| 0.62 |" in line  # the paper's 1.20 / 1.92 steps a second
    assert "| 0.99 |" in line


def test_a_report_keeps_its_rows_and_measures_the_missing_ones_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    kept, changed, missing = "one: --arch A", "two: --arch B", "three: --arch C"
    measured = []

    def measure(row: Row, args: object, report: object) -> Dict[str, Any]:
        assert len(measured) < 3 or row.name != "three", "killed"
        measured.append(row.flags)
        return {"name": row.name, "paper": "", "flags": row.flags, "extra_parameters": 0,
                "phases": {}, "memory": {}, "stock_flags": ""}  # fmt: skip

    monkeypatch.setattr(benchmark, "measure", measure)
    monkeypatch.setattr(benchmark, "tables", lambda results, phases: len(results))
    flags = [*BRIEF, "--json", str(path)]
    benchmark.main([*flags, "--system", kept, "--system", changed])
    with pytest.raises(AssertionError, match="killed"):
        benchmark.main([*flags, "--system", kept, "--system", "two: --arch D", "--system", missing])
    assert measured == ["--arch A", "--arch B", "--arch D"]
    assert {name: row["flags"] for name, row in read(path).items()} == {
        "one": "--arch A",
        "two": "--arch D",
    }


def test_a_report_of_other_settings_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    text = json.dumps({"settings": {"size": "big"}, "results": []})
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match="measured with size big, not tiny") as error:
        benchmark.main([*BRIEF, "--json", str(path)])
    assert len(str(error.value).splitlines()) == 1
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize("text", ["[]", "{}", "no JSON"])
def test_a_file_that_is_no_report_is_refused_and_stays_as_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=r"report\.json"):
        benchmark.main([*BRIEF, "--json", str(path)])
    assert path.read_text("utf-8") == text


def test_the_floor_of_head_aggregation_is_the_mean_of_the_votes() -> None:
    args = benchmark.parse_arguments(TINY)
    floor = workload.mean_of_votes(workload.build(ROWS["EM, enc-self"].model("tiny"), args))
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
    args = benchmark.parse_arguments(TINY)
    model = workload.build(f"{LAYERS} --layer-aggregation {routing}", args)
    module = routed_layers(workload.mean_of_votes(model))
    states = [torch.randn(2, 128) for _ in range(3)]
    hidden = torch.relu(module.hidden(torch.cat(states, -1)))
    votes = module.votes(hidden).unflatten(-1, (3, 128))
    if routing == "em-routing":
        votes = votes * module.activation(hidden).sigmoid().unflatten(-1, (3, 128))
    torch.testing.assert_close(module(states), votes.mean(-2))


def test_the_work_is_that_of_the_matrix_products() -> None:
    args = benchmark.parse_arguments(TINY)
    wide = f"{workload.stock_flags('tiny')} --encoder-ffn-embed-dim 512"
    more = [
        workload.matmul_work(flags, phase, args)
        for flags in (wide, workload.stock_flags("tiny"))
        for phase in ("forward", "train")
    ]
    forward = 3 * 2 * (512 - 256) * 128 * args.length * 2  # layers, linear maps, flops a product
    assert more[0] - more[2] == forward
    assert more[1] - more[3] == 3 * forward


def test_the_training_step_minimises_the_loss_of_its_flags() -> None:
    """Stock and ours have fairseq's own criterion, a row with disagreement its own."""
    args = benchmark.parse_arguments(TINY)
    plain = PLAIN.format(size="_tiny")
    batch = workload.Workload(args).batch
    model = workload.build(f"{plain} --dropout 0", args).train()

    def loss(flags: str) -> float:
        criterion = workload.build_criterion(flags, args).train()
        assert criterion.eps == 0.1
        summed, sample_size, _ = criterion(model, batch)
        return (summed / sample_size).item()

    stock = loss(workload.stock_flags("tiny"))
    assert loss(plain) == stock
    assert loss(f"{plain} {disagreement('output')}") > stock


def test_a_training_step_moves_every_parameter() -> None:
    args = benchmark.parse_arguments(TINY)
    flags = PLAIN.format(size="_tiny")
    model = workload.build(flags, args)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = workload.Workload(args).phase("train", model, flags)
    step()
    still = [name for name, p in model.named_parameters() if torch.equal(p, before[name])]
    # a bias of the keys shifts all scores of a query alike: its gradient is rounding
    assert not [name for name in still if not name.endswith("k_proj.bias")]


def test_the_peak_memory_is_that_of_a_fresh_process() -> None:
    flags = [*TINY, "--json", "unused.json"]
    peak = benchmark.peak_memory(PLAIN.format(size="_tiny"), benchmark.parse_arguments(flags))
    assert 0.05 < peak < 4  # GiB; importing torch alone takes more than the lower bound


def chosen(*flags: str) -> list:
    return [row.name for row in benchmark.chosen_rows(benchmark.parse_arguments([*BRIEF, *flags]))]


def test_rows_are_chosen_by_name_by_paper_and_by_flags() -> None:
    assert chosen() == list(ROWS)
    assert chosen("--rows", "EM, enc-self", "switches off") == ["switches off", "EM, enc-self"]
    assert chosen("--paper", "duan2020", "--rows", "EM, enc-dec") == [
        "EM, enc-dec",
        *(name for name, row in ROWS.items() if row.paper == "duan2020"),
    ]
    assert chosen("--system", "mine: --arch transformer") == ["mine"]


def test_a_row_is_measured_in_its_own_size_unless_another_is_given() -> None:
    row = ROWS["EM routing of layers, big"]
    assert "capsnmt_transformer_big " in row.command()
    assert "capsnmt_transformer_tiny " in row.command("tiny")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--rows", "EM, enc-sel"], "'EM, enc-sel' is no row: did you mean 'EM, enc-self'"),
        (["--rows", "?"], "--help names them all"),
        (["--paper", "li2018"], "li2018"),
        (["--tokens", "0"], "--tokens: 0: give 1 or more"),
        (["--system", "no colon"], "--system: 'no colon': give 'NAME: FLAGS'"),
        (["--system", "a: --x", "--system", "a: --y"], "--system: 'a' is the name of two rows"),
    ],
)
def test_a_bad_flag_is_one_line(flags: list, named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        benchmark.main(flags)
    assert named in str(error.value)
    assert len(str(error.value).splitlines()) == 1
