"""Connections of layers against the papers' equations, one position and one number at a time."""

from __future__ import annotations

from typing import List

import pytest
import torch
from torch import Tensor, nn

from capsnmt.modules.layer_aggregation import CONNECTIONS, LayerConnection, layer_connection
from tests.modules.layer_aggregation_oracle import connected
from tests.modules.test_layer_aggregation import assert_same_gradients, counting_matmuls

WIDTH, LAYERS = 4, 3
# (mode, pre-norm)
SETTINGS = [("dlcl", True), ("dlcl", False), ("dense", False)]
every_setting = pytest.mark.parametrize(("mode", "pre_norm"), SETTINGS)


def connection(mode: str, pre_norm: bool) -> nn.Module:
    torch.manual_seed(0)
    module = layer_connection(mode, WIDTH, LAYERS, pre_norm).double()
    for parameter in module.parameters():  # what starts at a constant is one special point
        nn.init.normal_(parameter, std=0.7)
    return module


def stack(num_layers: int = LAYERS, width: int = WIDTH) -> nn.ModuleList:
    torch.manual_seed(1)
    layers = (nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(num_layers))
    return nn.ModuleList(layers).double()


def states_of(module: nn.Module, layers: nn.ModuleList, x: Tensor) -> List[Tensor]:
    """Run the layers as the stacks do, and return x_2 to x_{L+1}."""
    below: List[Tensor] = []
    states = [module.follow(x, below)]
    for layer in layers:
        states.append(module.follow(layer(states[-1]), below))
    return states[1:]


def embedding(*leading: int) -> Tensor:
    torch.manual_seed(2)
    return torch.randn(*leading, WIDTH, dtype=torch.float64, requires_grad=True)


@every_setting
def test_the_states_and_their_gradients_equal_the_equations(mode: str, pre_norm: bool) -> None:
    module, layers, x = connection(mode, pre_norm), stack(), embedding(2, 2)
    states = torch.stack(states_of(module, layers, x))
    positions = [torch.stack(connected(module, mode, y, layers)) for y in x.flatten(0, 1)]
    expected = torch.stack(positions, dim=1).view_as(states)
    torch.testing.assert_close(states, expected)
    assert_same_gradients(states, expected, [x, *module.parameters(), *layers.parameters()])


@every_setting
def test_a_position_is_combined_independently(mode: str, pre_norm: bool) -> None:
    """So a decoder decodes step by step, and padding affects nothing."""
    module, layers, x = connection(mode, pre_norm), stack(), embedding(2, 3)
    for state, alone in zip(states_of(module, layers, x), states_of(module, layers, x[1, 2])):
        torch.testing.assert_close(state[1, 2], alone)


def test_dense_starts_as_the_plain_stack() -> None:
    module, layers, x = (
        layer_connection("dense", WIDTH, LAYERS, True).double(),
        stack(),
        embedding(2),
    )
    for layer, state in zip(layers, states_of(module, layers, x)):
        x = layer(x)
        assert torch.equal(state, x)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_dlcl_starts_as_the_mean_of_all_states(pre_norm: bool) -> None:
    module, layers, x = (
        layer_connection("dlcl", WIDTH, LAYERS, pre_norm).double(),
        stack(),
        embedding(2),
    )

    def norm(state: Tensor) -> Tensor:
        return nn.functional.layer_norm(state, (WIDTH,))

    outputs = [norm(x) if pre_norm else x]
    below = outputs[0]
    for layer, state in zip(layers, states_of(module, layers, x)):
        y = layer(below)
        outputs.append(norm(y) if pre_norm else y)
        mean = torch.stack(outputs).mean(0)
        torch.testing.assert_close(state, mean if pre_norm else norm(mean))
        below = state


@every_setting
def test_the_contributions_are_the_summands_of_the_equation(mode: str, pre_norm: bool) -> None:
    module = connection(mode, pre_norm)
    states = [embedding(2), 2 * embedding(2)]
    parts = module.contributions(states)
    assert parts.shape == (2, 2, WIDTH)
    for k, state in enumerate(states):
        weight = module.weights[1 if mode == "dlcl" else 0][k]
        torch.testing.assert_close(parts[:, k], weight * state)


@every_setting
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_leaves_the_states_in_fp32(mode: str, pre_norm: bool, dtype: torch.dtype) -> None:
    module = connection(mode, pre_norm).float()
    states = [state.float() for state in (embedding(50), 2 * embedding(50))]
    with torch.autocast("cpu", dtype=dtype):
        output = module(states)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, module(states))


@every_setting
def test_every_parameter_has_a_gradient_at_the_start(mode: str, pre_norm: bool) -> None:
    module = layer_connection(mode, WIDTH, LAYERS, pre_norm).double()
    output = states_of(module, stack(), embedding(20))[-1]
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-6, name


def saved_elements(mode: str, num_layers: int, width: int) -> int:
    """The elements of all tensors that a pass keeps for its backward pass, each counted once."""
    module = layer_connection(mode, width, num_layers, False)
    kept = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    states: List[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        for _ in range(num_layers + 1):
            states.append(torch.randn(width, requires_grad=True))
            LayerConnection.forward(module, states) if mode == "dlcl" else module(states)
    return sum(tensor.untyped_storage().nbytes() // 4 for tensor in kept.values())


@pytest.mark.parametrize("mode", CONNECTIONS)
def test_training_keeps_each_state_once_and_not_once_for_every_sum(mode: str) -> None:
    layers, width = 24, 512
    assert saved_elements(mode, layers, width) <= (layers + 2) * width


@every_setting
def test_without_gradients_it_is_the_same_sum(mode: str, pre_norm: bool) -> None:
    module, layers, x = connection(mode, pre_norm), stack(), embedding(2).detach()
    expected = states_of(module, layers, x)[-1]
    with torch.no_grad():
        torch.testing.assert_close(states_of(module, layers, x)[-1], expected)


@pytest.mark.parametrize("mode", CONNECTIONS)
def test_the_number_of_matrix_products_does_not_grow_with_the_states(mode: str) -> None:
    module = layer_connection(mode, WIDTH, 30, True)
    calls = []
    for count in (2, 31):
        with counting_matmuls() as counter:
            module([torch.randn(3, WIDTH) for _ in range(count)])
        calls.append(counter.calls)
    assert calls == [1, 1]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("max", WIDTH, LAYERS, True), "'max' is not a connection: choose from dlcl, dense"),
        (("dlcl", 0, LAYERS, True), "embed_dim must be at least 1, not 0"),
        *[((mode, WIDTH, 0, True), "num_layers must be at least 1, not 0") for mode in CONNECTIONS],
    ],
)
def test_a_bad_setting_is_one_line_that_names_it(setting: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        layer_connection(*setting)
    assert "\n" not in str(caught.value)
