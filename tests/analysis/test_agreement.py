"""Entropy and diversity of coupling coefficients against loops, and their limits."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Tuple

import pytest
import torch
from torch import Tensor

from capsnmt.analysis.agreement import Agreement, by_strongest_input, diversity, skewness
from capsnmt.analysis.base import NotApplicableError
from capsnmt.analysis.forward_pass import Batch
from capsnmt.routing.recording import record_routing
from tests.analysis.passes import make_batch, pass_through, real_positions, run
from tests.support import EVERYWHERE, build

# model -> place and layer of each call of a routing operator, in the order of the forward pass
MODELS: Dict[str, Tuple[Tuple[str, ...], List[Tuple[str, int]]]] = {
    "heads": (
        ("transformer_em_routing", *EVERYWHERE, "--head-capsules", "4"),
        [
            *(("enc-self", 1), ("enc-self", 2)),
            *(("dec-self", 1), ("enc-dec", 1), ("dec-self", 2), ("enc-dec", 2)),
        ],
    ),
    "layers": (
        ("transformer_dlcl_routing", "--layer-capsules", "8"),
        [("encoder", 2), ("decoder", 2)],
    ),
    "scores": (
        ("capsule_transformer",),
        [
            *((f"enc-self-{kind}", n) for n in (1, 2) for kind in ("vertical", "horizontal")),
            *(("dec-self-horizontal", n) for n in (1, 2)),
        ],
    ),
}


def cases(place: str, C: Tensor, batch: Batch) -> List[Tensor]:
    """Return the coefficients of each routing of real tokens, ``[I, N]`` without padding."""
    real = batch.source if place.startswith("enc-self") or place == "encoder" else batch.target
    found = []
    for number, mask in enumerate(real):
        columns = real_positions(mask)
        if place.endswith("vertical"):
            found.append(C[number][:, columns])
        elif place.endswith("horizontal"):
            found += [C[number, l][[t for t in columns if t <= l]] for l in columns]
        else:
            found += [C[l, number] for l in columns]
    return found


def naive_entropy(C: Tensor) -> float:
    total = 0.0
    for row in C.tolist():
        total -= sum(c * math.log(c) for c in row if c)
    return total / len(C)


def naive_diversity(C: Tensor) -> Any:
    columns = C.T
    cosines = [
        float(a @ b) / (float(a.norm()) * float(b.norm()))
        for n, a in enumerate(columns)
        for m, b in enumerate(columns)
        if n != m
    ]
    return 1 - sum(cosines) / len(cosines) if cosines else None


@pytest.mark.parametrize("left_pad", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_are_those_of_loops(name: str, left_pad: bool) -> None:
    (arch, *flags), places = MODELS[name]
    model, batch = build(arch, *flags), make_batch(left_pad)
    with record_routing() as records:
        pass_through(model, batch)
    analysis = run(Agreement, model, batch)
    found = {tuple(row[:3]): tuple(row[3:]) for row in analysis.rows()}
    assert len(records) == len(places)
    assert found.keys() == {(*place, iteration) for place in places for iteration in (1, 2, 3)}
    for (place, layer), record in zip(places, records):
        for iteration, C in enumerate(record.coefficients, 1):
            each = cases(place, C, batch)
            entropies = [naive_entropy(case) for case in each]
            diversities = [d for d in map(naive_diversity, each) if d is not None]
            expected = (
                sum(entropies) / len(entropies),
                sum(diversities) / len(diversities) if diversities else math.nan,
            )
            row = found[place, layer, iteration]
            assert row == pytest.approx(expected, rel=1e-4, abs=1e-5, nan_ok=True), place


def test_the_map_is_the_mean_over_real_tokens_of_all_batches() -> None:
    (arch, *flags), _ = MODELS["layers"]
    model, batches = build(arch, *flags), [make_batch(True), make_batch(False, first=3)]
    each = []
    for batch in batches:
        with record_routing() as records:
            pass_through(model, batch)
        each += cases("encoder", records[0].coefficients[-1], batch)
    mean = torch.stack(each).mean(0)
    (maps,) = [
        maps for key, maps in run(Agreement, model, *batches).maps().items() if key[0] == "encoder"
    ]
    torch.testing.assert_close(maps[-1].float(), mean[:, by_strongest_input(mean)])


def test_output_capsules_are_sorted_by_their_strongest_input() -> None:
    C = torch.tensor([[0.1, 0.6, 0.2, 0.7], [0.9, 0.4, 0.8, 0.3]])
    assert by_strongest_input(C) == [3, 1, 0, 2]


@pytest.mark.parametrize("capsules", [1, 2, 512])
def test_limits_of_a_uniform_and_a_one_hot_choice(capsules: int) -> None:
    inputs, outputs = torch.ones(6, dtype=torch.bool), torch.ones(capsules, dtype=torch.bool)
    uniform = torch.full((6, capsules), 1 / capsules)
    assert skewness(uniform, inputs).item() == pytest.approx(math.log(capsules), abs=1e-5)
    alike = diversity(uniform, inputs, outputs).item()
    assert math.isnan(alike) if capsules == 1 else alike == pytest.approx(0, abs=1e-5)
    if capsules == 2:
        one_hot = torch.eye(2).repeat(3, 1)
        assert skewness(one_hot, inputs).item() == 0
        assert diversity(one_hot, inputs, outputs).item() == pytest.approx(1)


def test_the_papers_value_of_a_uniform_choice() -> None:
    """dou2019 prints 6.24 for N = 512."""
    found = skewness(torch.full((6, 512), 1 / 512), torch.ones(6, dtype=torch.bool))
    assert round(found.item(), 2) == 6.24


def test_a_model_that_routes_nothing_has_no_agreement() -> None:
    with pytest.raises(NotApplicableError, match="it routes nothing"):
        run(Agreement, build("capsnmt_transformer"))
