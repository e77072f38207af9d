"""Aggregation of heads and layers, and connections of layers, against the papers, by numbers."""

from typing import Any, Dict, List, Tuple

import pytest
import torch
from torch import Tensor, nn

from capsnmt.modules.algorithms import OF_HEADS, OF_LAYERS
from capsnmt.modules.head_aggregation import HeadRouting
from capsnmt.modules.layer_aggregation import (
    CONNECTIONS,
    POSITION_WISE,
    TransparentMixture,
    layer_aggregation,
    layer_connection,
)
from tests.counting import Operations
from tests.modules.compare import assert_same, numbers, randomised
from tests.modules.layer_aggregation_oracle import connected, oracle
from tests.routing import oracles

WIDTH, LAYERS, FFN = 4, 3, 5
HEAD_WIDTH, HEADS = 8, 2
SETTINGS: Dict[str, Dict[str, Any]] = {
    **{mode: {"mode": mode} for mode in POSITION_WISE if mode not in OF_LAYERS},
    **{
        f"{mode}:N={capsules}:{'own' if own else 'all'}:T={iterations}": {
            "mode": mode,
            "num_capsules": capsules,
            "own": own,
            "iterations": iterations,
        }
        for mode in OF_LAYERS
        for capsules, own, iterations in [(0, False, 3), (2, True, 3), (2, False, 1), (0, True, 2)]
    },
    "em-routing:random": {
        **{"mode": "em-routing", "num_capsules": 2, "iterations": 1, "coefficients": "random"}
    },
}
RESIDUALS = "attention-residuals"
CONNECTED: Dict[str, Dict[str, Any]] = {
    "dlcl, pre-norm": {"mode": "dlcl", "normalize_before": True},
    "dlcl, post-norm": {"mode": "dlcl", "normalize_before": False},
    "dense": {"mode": "dense", "normalize_before": False},
    RESIDUALS: {"mode": RESIDUALS, "normalize_before": True},
    "blocks": {"mode": RESIDUALS, "normalize_before": True, "sublayers": 3, "block": 4},
}
every_connection = pytest.mark.parametrize("setting", CONNECTED.values(), ids=CONNECTED)


def aggregation(num_layers: int = LAYERS, **setting: Any) -> nn.Module:
    return layer_aggregation(embed_dim=WIDTH, num_layers=num_layers, ffn_dim=FFN, **setting)


def layers_of(*leading: int, num_layers: int = LAYERS, width: int = WIDTH) -> List[Tensor]:
    return [numbers(*leading, width, seed=seed) for seed in range(num_layers)]


@pytest.mark.parametrize("num_layers", [1, LAYERS])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_an_aggregate_and_its_gradients_equal_the_equations(setting: dict, num_layers: int) -> None:
    module = randomised(aggregation(num_layers, **setting))
    layers = layers_of(2, 2, num_layers=num_layers)
    positions = zip(*(layer.flatten(0, 1) for layer in layers))
    expected = torch.stack([oracle(module, setting["mode"], list(one)) for one in positions])
    if num_layers == 1:
        torch.testing.assert_close(module(layers), expected.view(2, 2, WIDTH))
    else:
        assert_same(module(layers), expected.view(2, 2, WIDTH), module, *layers)


@pytest.mark.parametrize("mode", POSITION_WISE)
def test_a_missing_layer_is_an_error_and_not_another_aggregate(mode: str) -> None:
    with pytest.raises(ValueError, match="built for 3 states and got 2"):
        aggregation(mode=mode)(layers_of(2, num_layers=2))


def test_the_transparent_mixture_and_its_gradients_equal_the_equation() -> None:
    states, module = layers_of(2, 3, num_layers=4), randomised(TransparentMixture(4, 2))
    shares = [oracles.softmax(list(module.weight[:, j])) for j in range(2)]
    expected = torch.cat([sum(p * x for p, x in zip(share, states)) for share in shares], dim=-1)
    assert_same(module(states), expected, module, *states)


def connection(num_layers: int = LAYERS, **setting: Any) -> nn.Module:
    return layer_connection(embed_dim=WIDTH, num_layers=num_layers, **setting)


def stack(connected_by: nn.Module) -> nn.ModuleList:
    """The layers, or sublayers, that a module connects."""
    count = connected_by.num_states - 1
    layers = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count))
    return nn.ModuleList(layers).double()


def states_of(module: nn.Module, layers: nn.ModuleList, x: Tensor) -> List[Tensor]:
    """Run the layers as the stacks do, and return x_2 to x_{L+1}."""
    below: List[Tensor] = []
    states = [module.follow(x, below)]
    for layer in layers:
        states.append(module.follow(layer(states[-1]), below))
    return states[1:]


@every_connection
def test_connected_states_and_their_gradients_equal_the_equations(setting: dict) -> None:
    module = randomised(connection(**setting))
    layers, x = stack(module), numbers(2, 2, WIDTH)
    states = torch.stack(states_of(module, layers, x))
    positions = [
        torch.stack(connected(module, setting["mode"], y, layers)) for y in x.flatten(0, 1)
    ]
    expected = torch.stack(positions, dim=1).view_as(states)
    assert_same(states, expected, module, x, *layers.parameters())


@pytest.mark.parametrize("setting", [CONNECTED[RESIDUALS], CONNECTED["blocks"]])
def test_the_sublayers_of_a_dropped_layer_compute_zero(setting: dict) -> None:
    """As many states are added as by a layer that runs, so that those above read their own."""
    module, x = randomised(connection(**setting)), numbers(2, 2, WIDTH)
    skipped: List[Tensor] = []
    ran: List[Tensor] = []
    for below in (skipped, ran):
        module.follow(x, below)
    output = module.skip(x, skipped)
    for _ in range(module.sublayers):
        expected = module.follow(torch.zeros_like(x), ran)
    torch.testing.assert_close((output, *skipped), (expected, *ran))


# --- heads


def head_oracle(module: HeadRouting, token: Tensor) -> Tensor:
    """Equations 5 to 12 of li2019 for the concatenated heads of one token."""
    parameters = (*module.hidden.parameters(), *module.votes.parameters())
    W_1, b_1, W_2, b_2 = (x.double() for x in parameters)
    hidden = torch.relu(W_1 @ token.double() + b_1)  # eq 5
    votes = (W_2 @ hidden + b_2).view(HEADS, module.num_capsules, -1)  # eq 6
    costs = (module.beta_a, module.beta_u) if module.routing == "em" else ()
    given = {} if module.coefficients is None else {"coefficients": module.coefficients}
    route = getattr(oracles, f"{module.routing}_routing")
    capsules, _ = route(votes, *costs, module.iterations, **given)
    capsules = capsules.flatten()
    return capsules if module.norm is None else module.norm(capsules)


@pytest.mark.parametrize(("capsules", "iterations"), [(0, 3), (2, 1)])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("routing", OF_HEADS)
def test_the_output_and_its_gradients_equal_the_equations(
    routing: str, capsules: int, iterations: int, normalize: bool
) -> None:
    module = HeadRouting(HEAD_WIDTH, HEADS, routing, capsules, iterations, normalize=normalize)
    module, heads = randomised(module, 0.6), numbers(2, 2, HEAD_WIDTH)
    expected = torch.stack([head_oracle(module, token) for token in heads.flatten(0, 1)])
    assert_same(module(heads), expected.view(2, 2, HEAD_WIDTH), module, heads)


@pytest.mark.parametrize("capsules", [0, 2])
def test_random_coefficients_are_the_equations_with_every_backend(capsules: int) -> None:
    module = HeadRouting(HEAD_WIDTH, HEADS, "em", capsules, 1, coefficients="random")
    (C,) = module.buffers()
    assert C.unique().numel() == C.numel()
    torch.testing.assert_close(C.sum(-1), torch.ones(HEADS))
    module, heads = randomised(module, 0.6), numbers(2, 2, HEAD_WIDTH)
    for dtype, module.backend in ((torch.float64, "eager"), (torch.float32, "auto")):
        module, heads = module.to(dtype), heads.detach().to(dtype).requires_grad_()
        expected = torch.stack([head_oracle(module, token) for token in heads.flatten(0, 1)])
        assert_same(module(heads), expected.view(2, 2, HEAD_WIDTH).to(dtype), module, heads)


def test_votes_start_as_large_as_the_projection_they_replace() -> None:
    module, heads = HeadRouting(256, 8, "em"), torch.randn(64, 256)
    projection = torch.nn.Linear(256, 256)
    torch.nn.init.xavier_uniform_(projection.weight)
    votes = module.votes(torch.relu(module.hidden(heads)))
    assert 0.5 < (votes.std() / projection(heads).std()).item() < 2


# --- how they start


def test_they_start_as_the_mean_or_near_the_top() -> None:
    """By the equations above. The linear and the dense start as the Transformer: test_limits.py."""
    for l, weight in enumerate(connection(mode="dlcl", normalize_before=True).weights, 1):
        torch.testing.assert_close(weight.flatten(), torch.full((l,), 1 / l))
    # the scores of a softmax
    assert not aggregation(mode="attention").query.any()
    assert not TransparentMixture(LAYERS, 2).weight.any()
    assert not any(x.any() for x in connection(mode=RESIDUALS, normalize_before=True).queries)
    layers = layers_of(50, num_layers=6, width=64)
    dynamic = layer_aggregation("dynamic", 64, 6, 128).double()
    assert 0 < (dynamic(layers) - layers[-1]).std() < 0.3


@pytest.mark.parametrize("mode", [*POSITION_WISE, *CONNECTIONS])
@pytest.mark.parametrize("variant", [False, True])
def test_every_parameter_has_a_gradient_at_the_start(mode: str, variant: bool) -> None:
    if mode in CONNECTIONS:
        module = connection(mode=mode, normalize_before=variant).double()
        output = states_of(module, stack(module), numbers(20, WIDTH))[-1]
    else:
        module = layer_aggregation(mode, 16, LAYERS, 32, own=variant).double()
        output = module(layers_of(20, width=16))
    (output * torch.randn_like(output)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # the gain of attention over depth multiplies the query, which starts at 0
        if (mode, name) != ("attention", "gain") and not name.startswith("gains"):
            assert parameter.grad.abs().max() > 1e-9, name


# Dynamic routing's capsules are shorter than 1: at D = 1 squash makes a sum s to s |s|.
STARTS: List[Tuple[str, int, float, float]] = [
    *(
        (mode, 0, 0.5, 2.0)
        for mode in POSITION_WISE
        if mode not in ("dynamic-routing", "inverted-routing", "attention")
    ),
    ("attention", 0, 0.3, 2),  # the mean of independent layers: 1/sqrt(6)
    *(("dynamic-routing", N, 0.003, 0.3) for N in (0, 1, 8)),
    ("inverted-routing", 0, 0.01, 0.3),  # at D = 1 a sum of votes / N
    *((mode, N, 0.2, 5) for mode in ("em-routing", "inverted-routing") for N in (1, 8)),
]


@pytest.mark.parametrize(("mode", "capsules", "least", "most"), STARTS)
@pytest.mark.parametrize("own", [False, True])
def test_the_aggregate_starts_at_a_size_that_trains(
    mode: str, capsules: int, least: float, most: float, own: bool
) -> None:
    """Neither near nothing nor, in dynamic routing, with one capsule for each layer."""
    module = layer_aggregation(mode, 128, 6, 256, num_capsules=capsules, own=own)
    layers = [layer.float() for layer in layers_of(100, num_layers=6, width=128)]
    output = module(layers)
    assert least < output.std().item() / layers[-1].std().item() < most
    if mode in ("dynamic-routing", "inverted-routing"):
        # saturated, all but six capsules would be 0: a median of 1e-28
        assert output.abs().median() > 0.01 * output.std()


# --- what they cost


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("mode", [*CONNECTIONS, *(m for m in POSITION_WISE if m != "iterative")])
def test_the_number_of_matrix_products_does_not_grow_with_the_layers(mode: str, own: bool) -> None:
    calls = []
    for num_layers in (2, 5):
        if mode in CONNECTIONS:
            module = connection(num_layers - 1, mode=mode, normalize_before=own).double()
        else:
            module = aggregation(num_layers, mode=mode, own=own).double()
        with Operations() as operations:
            module(layers_of(3, num_layers=num_layers))
        calls.append(operations.count("mm", "addmm", "bmm", "baddbmm"))
    assert calls[0] == calls[1] > 0


@every_connection
def test_autocast_leaves_connected_states_in_fp32(setting: dict) -> None:
    module = randomised(connection(**setting)).float()
    states = [state.detach().float() for state in layers_of(50)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = module(states)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, module(states))
