"""Layer aggregation against the papers' equations, one position and one number at a time."""

from __future__ import annotations

import contextlib
from typing import List

import pytest
import torch
from torch import Tensor, nn

from capsnmt.modules.layer_aggregation import (
    CONNECTIONS,
    LAYER_AGGREGATIONS,
    POSITION_WISE,
    TransparentMixture,
    layer_aggregation,
)
from capsnmt.modules.layer_aggregation.routing import ROUTINGS, LayerRouting
from capsnmt.routing import record_routing, routing_backend
from tests.modules.layer_aggregation_oracle import oracle
from tests.routing import oracles

WIDTH, LAYERS, FFN = 4, 3, 5
SETTINGS = {mode: {"mode": mode} for mode in POSITION_WISE if mode not in ROUTINGS} | {
    f"{mode}:N={capsules}:{'own' if own else 'all'}:T={iterations}": {
        "mode": mode,
        "num_capsules": capsules,
        "own": own,
        "iterations": iterations,
    }
    for mode in ROUTINGS
    for capsules, own, iterations in [(0, False, 3), (2, True, 3), (2, False, 1), (0, True, 2)]
}
every_mode = pytest.mark.parametrize("mode", POSITION_WISE)
every_routing = pytest.mark.parametrize("mode", ROUTINGS)
every_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


def aggregation(num_layers: int = LAYERS, **setting: object) -> nn.Module:
    torch.manual_seed(0)
    module = layer_aggregation(embed_dim=WIDTH, num_layers=num_layers, ffn_dim=FFN, **setting)
    module = module.double()
    for parameter in module.parameters():  # what starts at a constant is one special point
        nn.init.normal_(parameter, std=0.7)
    return module


def layers_of(*leading: int, num_layers: int = LAYERS, width: int = WIDTH) -> List[Tensor]:
    torch.manual_seed(1)
    return [
        torch.randn(*leading, width, dtype=torch.float64, requires_grad=True)
        for _ in range(num_layers)
    ]


def assert_same_gradients(output: Tensor, expected: Tensor, learned: List[Tensor]) -> None:
    probe = torch.randn_like(output)
    for one, other in zip(
        torch.autograd.grad((output * probe).sum(), learned),
        torch.autograd.grad((expected * probe).sum(), learned),
    ):
        torch.testing.assert_close(one, other)


@every_setting
def test_the_output_and_its_gradients_equal_the_equations(setting: dict) -> None:
    module, layers = aggregation(**setting), layers_of(2, 2)
    output = module(layers)
    positions = zip(*(layer.flatten(0, 1) for layer in layers))
    expected = torch.stack([oracle(module, setting["mode"], list(one)) for one in positions])
    expected = expected.view_as(output)
    torch.testing.assert_close(output, expected)
    assert_same_gradients(output, expected, [*layers, *module.parameters()])


def test_the_transparent_mixture_and_its_gradients_equal_the_equation() -> None:
    states = layers_of(2, 3, num_layers=4)
    module = TransparentMixture(4, 2).double()
    nn.init.normal_(module.weight)
    output = module(states)
    assert output.shape == (2, 3, 2 * WIDTH)
    expected = torch.zeros_like(output)
    for j in range(2):
        share = oracles.softmax(list(module.weight[:, j]))
        for l in range(4):
            block = slice(j * WIDTH, (j + 1) * WIDTH)
            expected[..., block] = expected[..., block] + share[l] * states[l]
    torch.testing.assert_close(output, expected)
    assert_same_gradients(output, expected, [*states, module.weight])


@pytest.mark.parametrize("mode", ["linear", "dynamic", "attention"])
def test_the_contributions_of_the_layers_are_the_summands_of_the_equation(mode: str) -> None:
    module, layers = aggregation(mode=mode), layers_of(2, 3)
    parts = module.contributions(layers)
    assert parts.shape == (2, 3, LAYERS, WIDTH)
    torch.testing.assert_close(parts.sum(-2), module(layers))
    for l, layer in enumerate(layers):
        position = layer[1, 2]
        if mode == "linear":
            part = module.combine.weight[:, l * WIDTH : (l + 1) * WIDTH] @ position
        elif mode == "dynamic":
            everything = torch.cat([x[1, 2] for x in layers])
            g = module.fc2(torch.relu(module.fc1(everything)))
            part = g[l * WIDTH : (l + 1) * WIDTH] * position
        else:
            part = module.weights(torch.stack([x[1, 2] for x in layers]))[l] * position
        torch.testing.assert_close(parts[1, 2, l], part)


def test_the_contributions_of_the_states_are_the_summands_of_each_mixture() -> None:
    states = layers_of(2, 3, num_layers=4)
    module = TransparentMixture(4, 2).double()
    nn.init.normal_(module.weight)
    parts = module.contributions(states)
    assert parts.shape == (2, 3, 2, 4, WIDTH)
    torch.testing.assert_close(parts.sum(-2).flatten(-2), module(states))
    share = oracles.softmax(list(module.weight[:, 1]))
    torch.testing.assert_close(parts[:, :, 1, 2], share[2] * states[2])


@every_setting
@pytest.mark.parametrize("leading", [(), (3,), (2, 3, 1)])
def test_a_position_is_aggregated_independently(setting: dict, leading: tuple) -> None:
    """So a decoder's aggregation decodes step by step, and padding affects nothing."""
    module, layers = aggregation(**setting), layers_of(*leading)
    output = module(layers)
    assert output.shape == (*leading, WIDTH)
    last = tuple(size - 1 for size in leading)
    torch.testing.assert_close(output[last], module([layer[last] for layer in layers]))


@every_mode
def test_one_layer_is_aggregated_too(mode: str) -> None:
    module, (layer,) = aggregation(mode=mode, num_layers=1), layers_of(3, num_layers=1)
    output = module([layer])
    expected = torch.stack([oracle(module, mode, [one]) for one in layer])
    torch.testing.assert_close(output, expected)
    if mode == "iterative":
        assert torch.equal(output, layer)


def test_the_linear_combination_starts_as_the_top_layer_and_can_stay_there() -> None:
    module, layers = layer_aggregation("linear", WIDTH, LAYERS, FFN).double(), layers_of(3)
    torch.testing.assert_close(module(layers), layers[-1])


def test_the_dynamic_combination_starts_near_the_top_layer() -> None:
    torch.manual_seed(0)
    module, layers = layer_aggregation("dynamic", 64, 6, 128), layers_of(50, num_layers=6, width=64)
    layers = [layer.float() for layer in layers]
    assert 0 < (module(layers) - layers[-1]).std() < 0.3


def test_attention_over_depth_starts_as_the_mean_of_all_layers() -> None:
    layers = layers_of(2)
    module = layer_aggregation("attention", WIDTH, LAYERS, FFN).double()
    torch.testing.assert_close(module(layers), torch.stack(layers).mean(0))


def test_attention_over_depth_takes_the_layer_that_its_query_points_to() -> None:
    module = layer_aggregation("attention", WIDTH, LAYERS, FFN).double()
    layers = list(torch.eye(WIDTH, dtype=torch.float64)[:LAYERS])
    with torch.no_grad():
        module.query[1] = 1000.0
    torch.testing.assert_close(module(layers), layers[1])


def test_the_transparent_mixtures_start_as_the_mean_of_all_states() -> None:
    states = layers_of(2)
    mean = torch.stack(states).mean(0)
    torch.testing.assert_close(
        TransparentMixture(LAYERS, 2).double()(states), torch.cat([mean] * 2, -1)
    )


@every_mode
@pytest.mark.parametrize("own", [False, True])
def test_every_parameter_has_a_gradient_at_the_start(mode: str, own: bool) -> None:
    torch.manual_seed(0)
    module = layer_aggregation(mode, 16, LAYERS, 32, own=own)
    layers = [layer.float() for layer in layers_of(20, width=16)]
    output = module(layers)
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # the gain of attention over depth multiplies the query, which starts at 0
        if (mode, name) != ("attention", "gain"):
            assert parameter.grad.abs().max() > 0, name


SMALLER = ("dynamic-routing", "attention")


# Dynamic routing's capsules are shorter than 1: at D = 1 squash makes a sum s to s |s|.
@pytest.mark.parametrize(
    ("mode", "capsules", "least", "most"),
    [
        *[(mode, 0, 0.5, 2) for mode in POSITION_WISE if mode not in SMALLER],
        ("attention", 0, 0.3, 2),  # the mean of independent layers: 1/sqrt(6)
        ("dynamic-routing", 0, 0.003, 0.3),
        *[("dynamic-routing", N, 0.003, 0.3) for N in (1, 8)],
        *[("em-routing", N, 0.2, 5) for N in (1, 8)],
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_the_aggregate_starts_at_a_size_that_trains(
    mode: str, capsules: int, least: float, most: float, own: bool
) -> None:
    """Neither near nothing nor, in dynamic routing, with one capsule for each layer."""
    torch.manual_seed(0)
    module = layer_aggregation(mode, 128, 6, 256, num_capsules=capsules, own=own)
    torch.manual_seed(1)
    layers = [torch.randn(100, 128) for _ in range(6)]
    output = module(layers)
    assert least < output.std().item() / layers[-1].std().item() < most
    if mode == "dynamic-routing":
        # saturated, all but six capsules would be 0: a median of 1e-28
        assert output.abs().median() > 0.01 * output.std()


@every_setting
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_finite_and_close_to_fp32(setting: dict, dtype: torch.dtype) -> None:
    module = aggregation(**setting).float()
    layers = [layer.detach().float().requires_grad_() for layer in layers_of(50)]
    expected = module(layers)
    with torch.autocast("cpu", dtype=dtype):
        output = module(layers)
        output.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    assert all(layer.grad.isfinite().all() for layer in layers)
    # routing is a discontinuous map where capsules tie: single positions may differ by more
    error = (output.float() - expected).abs()
    assert error.median() < 0.02 * expected.abs().mean()


@every_mode
def test_the_routing_runs_with_the_given_iterations_and_backend(mode: str) -> None:
    module, layers = aggregation(mode=mode, iterations=4, backend="eager"), layers_of(2)
    with record_routing() as records:
        module(layers)
    calls = [(record.operator, len(record.coefficients)) for record in records]
    assert calls == ([(mode.replace("-", "_"), 4)] if mode in ROUTINGS else [])
    if mode in ROUTINGS:
        module.backend = "no such backend"
        with routing_backend("auto"), pytest.raises(ValueError, match="no such backend"):
            module(layers)


def test_every_mode_is_one_of_the_flags_values() -> None:
    assert set(LAYER_AGGREGATIONS) == {"none", "transparent", *POSITION_WISE, *CONNECTIONS}
    assert len(LAYER_AGGREGATIONS) == len(set(LAYER_AGGREGATIONS))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"mode": "max"}, "'max'.*linear, iterative, dynamic, attention, dynamic-routing"),
        ({"mode": "transparent"}, "'transparent' is not position-wise"),
        ({"mode": "em-routing", "num_capsules": 3}, "3 capsules do not divide the width 4"),
        ({"mode": "em-routing", "num_capsules": -2}, "-2 capsules do not divide the width 4"),
        ({"mode": "em-routing", "iterations": 0}, "iterations.*>= 1, not 0"),
        ({"mode": "em-routing", "backend": "fast"}, "backend 'fast'"),
        ({"mode": "linear", "num_layers": 0}, "num_layers must be at least 1, not 0"),
        ({"mode": "iterative", "ffn_dim": 0}, "ffn_dim must be at least 1, not 0"),
        ({"mode": "dynamic", "ffn_dim": -1}, "ffn_dim must be at least 1, not -1"),
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(setting: dict, message: str) -> None:
    good = {"embed_dim": WIDTH, "num_layers": LAYERS, "ffn_dim": FFN}
    with pytest.raises(ValueError, match=message) as caught:
        layer_aggregation(**{**good, **setting})
    assert "\n" not in str(caught.value)


def test_a_bad_routing_or_mixture_is_one_line_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"'simple'.*dynamic-routing, em-routing"):
        LayerRouting(WIDTH, LAYERS, "simple")
    with pytest.raises(ValueError, match="num_decoder_layers must be at least 1, not 0"):
        TransparentMixture(3, 0)


@every_mode
def test_a_missing_layer_is_an_error_and_not_another_aggregate(mode: str) -> None:
    module, layers = aggregation(mode=mode), layers_of(2)
    with pytest.raises(ValueError, match="built for 3 states and got 2"):
        module(layers[1:])
    with pytest.raises(ValueError, match="built for 2 states and got 3"):
        TransparentMixture(2, 1)(layers)


@contextlib.contextmanager
def counting_matmuls():
    """Count the matrix products that run, whatever module they are in."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket.__name__ in ("mm", "addmm", "bmm", "baddbmm"):
                self.calls += 1
            return func(*args, **(kwargs or {}))

    with Counter() as counter:
        yield counter


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("mode", [mode for mode in POSITION_WISE if mode != "iterative"])
def test_the_number_of_matrix_products_does_not_grow_with_the_layers(mode: str, own: bool) -> None:
    calls = []
    for num_layers in (2, 5):
        module = aggregation(mode=mode, own=own, num_layers=num_layers)
        with counting_matmuls() as counter:
            module(layers_of(3, num_layers=num_layers))
        calls.append(counter.calls)
    assert calls[0] == calls[1] > 0
