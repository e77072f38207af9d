"""What makes it faster changes no result: whatever torch does around it, torch sees everything."""

import contextlib
import copy
import pickle
import weakref
from argparse import Namespace
from itertools import product
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator

import pytest
import torch
import torch.nn.functional as F
from fairseq.dataclass.configs import GenerationConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import build_optimizer
from fairseq.tasks import FairseqTask
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.parametrize import type_before_parametrizations
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from capsnmt import routing
from capsnmt.fast.adam import has_fused_kernel
from capsnmt.fast.cpp import build
from capsnmt.fast.linear import PreparedLinear, prepare
from capsnmt.fast.triton import launch
from capsnmt.modules import Attention, CapsuleAttention, HeadRouting, LayerRouting, shortcuts
from capsnmt.modules.algorithms import OF_HEADS, OF_LAYERS
from capsnmt.modules.dropout import Dropout
from capsnmt.modules.layer_aggregation import (
    CONNECTIONS,
    POSITION_WISE,
    layer_aggregation,
    layer_connection,
)
from capsnmt.modules.shortcuts import SHORTCUTS
from capsnmt.routing import simple
from tests.fast.test_generator import SOURCES, TRANSLATION, prepared, scores_of
from tests.models.test_search import assert_same_hypotheses
from tests.routing.operators import random
from tests.routing.test_backend import fail, train
from tests.support import NORM, encoder_input, parse

D, LAYERS = 8, 3
SOURCE = encoder_input(SOURCES)
X = random(2, 4, 3, D)  # two inputs of 4 positions of 3 sentences
OPERATORS = [
    getattr(routing, name).OPERATOR
    for name in ("dynamic", "em", "horizontal", "inverted", "simple", "vertical")
]


@pytest.fixture(autouse=True)
def of_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor is one for which linear maps are prepared; all can compute them in fp32."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


PLAIN_SHORTCUTS = shortcuts.Shortcuts(
    F.dropout, lambda q, k: True, shortcuts.attend, shortcuts.softmax_, lambda query, values: None
)


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """Everything that has been added is taken away; torch's fused attention has no jvp."""
    with pytest.MonkeyPatch.context() as patch:
        for operator in OPERATORS:
            patch.setattr(operator, "kernels", [])
        for name, function in vars(PLAIN_SHORTCUTS).items():
            patch.setattr(SHORTCUTS, name, function)
        patch.setattr(PreparedLinear, "forward", nn.Linear.forward)
        yield


class Layers(nn.Module):
    """An aggregation or connection as a function of one tensor, of which it makes the layers."""

    def __init__(self, module: nn.Module, connects: bool = False) -> None:
        super().__init__()
        self.module, self.connects = module, connects

    def forward(self, x: Tensor) -> Tensor:
        states = [x * (1 + 0.3 * number) for number in range(LAYERS)]
        if not self.connects:
            return self.module(states)
        below = [x]
        for state in states:
            x = self.module.follow(x + state.tanh(), below)
        return x


class First(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[0]


def linear_maps() -> nn.Module:
    """A map whose matrix will be packed, between maps to its width and back."""
    return nn.Sequential(nn.Linear(D, 512), nn.Linear(512, 512), nn.Linear(512, D))


def prepared_linear() -> nn.Module:
    return linear_maps().apply(prepare)


MODULES: Dict[str, Callable[[], nn.Module]] = {
    **{f"heads, {name}": lambda name=name: HeadRouting(D, 2, name) for name in OF_HEADS},
    **{
        f"layers, {name}": lambda name=name: Layers(layer_aggregation(name, D, LAYERS, 16))
        for name in POSITION_WISE
        if name not in OF_LAYERS
    },
    **{f"layers, {n}": lambda n=n: Layers(LayerRouting(D, LAYERS, n)) for n in OF_LAYERS},
    **{
        name: lambda name=name: Layers(layer_connection(name, D, LAYERS, False), connects=True)
        for name in CONNECTIONS
        if name != "attention-residuals"
    },
    "attention": lambda: First(Attention(D, 2)),
    "vertical": lambda: First(CapsuleAttention(D, 2, vertical=True)),
    "horizontal": lambda: First(CapsuleAttention(D, 2, horizontal=True)),
    "dropout": lambda: nn.Sequential(nn.Linear(D, D), Dropout(0.3)),
    "prepared maps": prepared_linear,
}


def forward_mode(module: nn.Module) -> Tensor:
    with torch.no_grad(), forward_ad.dual_level():
        return forward_ad.unpack_dual(module(forward_ad.make_dual(X[0], X[1]))).tangent


def batch_of_gradients(module: nn.Module) -> Tensor:
    x = X[0].clone().requires_grad_()
    y = module(x)
    both = torch.stack([y.detach(), -2 * y.detach()])
    return torch.autograd.grad(y, x, both, is_grads_batched=True)[0]


def exported(module: nn.Module) -> Tensor:
    with torch.no_grad():
        return torch.export.export(module, (X[0],), strict=False).module()(X[1])


def called_with_others(module: nn.Module) -> Tensor:
    """The parameters of each call live as long as the call."""
    outputs = []
    for factor in range(1, 6):
        others = {name: factor / 3 * p.detach() for name, p in module.named_parameters()}
        with torch.no_grad():
            outputs.append(torch.func.functional_call(module, others, (X[0],)))
    return torch.stack(outputs)


def default_device(module: nn.Module) -> Tensor:
    with torch.device("meta"), torch.no_grad():
        return module(X[0])


def counted(module: nn.Module) -> Tensor:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(X[0])
    return torch.tensor(float(counter.get_total_flops()))


class Halved(TorchFunctionMode):
    def __torch_function__(self, function: Any, _: Any, args: Any = (), more: Any = None) -> Any:
        result = function(*args, **(more or {}))
        return result / 2 if function in (F.linear, Tensor.softmax) else result


def with_others(module: nn.Module) -> Tensor:
    with Halved(), torch.no_grad():
        return module(X[0])


FOLLOWED: Dict[str, Callable[[nn.Module], Tensor]] = {
    "vmap": lambda f: torch.func.vmap(f, randomness="different")(X),
    "a gradient per sample": lambda f: torch.func.vmap(
        torch.func.grad(lambda x: f(x).square().sum()), randomness="same"
    )(X),
    "vjp": lambda f: torch.func.vjp(f, X[0])[1](X[1])[0],
    "jvp": lambda f: torch.func.jvp(f, (X[0],), (X[1],))[1],
    "jvp without gradients": forward_mode,
    "jvp of a gradient": lambda f: torch.func.jvp(
        torch.func.grad(lambda x: f(x).square().sum()), (X[0],), (X[1],)
    )[1],
    "make_fx": lambda f: make_fx(f)(X[0])(X[1]),
    "trace": lambda f: torch.jit.trace(f, X[0], check_trace=False)(X[1]),
    "export": exported,
}
AROUND: Dict[str, Callable[[nn.Module], Tensor]] = {
    "a batch of gradients": batch_of_gradients,
    "functional_call": called_with_others,
    "default device": default_device,
    "operations that are counted": counted,
    "other functions": with_others,
}


# with every commit, for it is long: one of each shortcut
EXPORTED = ("heads, em", "layers, attention", "attention", "dropout", "prepared maps")


def outcome(function: Callable[[nn.Module], Tensor], module: nn.Module) -> Any:
    """The result, or the type of what is raised."""
    torch.manual_seed(1)
    try:
        return function(module).detach()
    except Exception as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "around"),
    [
        pytest.param(*case, marks=[pytest.mark.nightly] * (case[1] == "export" and at_night))
        for case in product(MODULES, [*FOLLOWED, *AROUND])
        for at_night in [case[0] not in EXPORTED]
    ],
)
def test_every_module_has_the_results_of_plain_torch(name: str, around: str) -> None:
    module = MODULES[name]()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    module.train(around in FOLLOWED)
    with plain_torch():
        expected = outcome({**FOLLOWED, **AROUND}[around], copy.deepcopy(module))
    found = outcome({**FOLLOWED, **AROUND}[around], module)
    assert isinstance(found, Tensor) == isinstance(expected, Tensor), (found, expected)
    if isinstance(found, Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    else:
        assert found is expected


def test_a_batch_of_gradients_passes_dropout_as_each_does() -> None:
    x = torch.ones(50, requires_grad=True)
    y = Dropout(0.5)(x)
    together = torch.autograd.grad(
        y, x, torch.eye(50)[:3], is_grads_batched=True, retain_graph=True
    )[0]
    alone = [torch.autograd.grad(y, x, row, retain_graph=True)[0] for row in torch.eye(50)[:3]]
    assert torch.equal(together, torch.stack(alone))


@pytest.mark.parametrize("votes", [random(4, 8, 512, 1).double(), random(4, 9, 513, 3)])
def test_what_the_fused_kernels_do_not_cover_runs_without_them(votes, monkeypatch):
    """Numbers of fp64, and more than 32,768 votes a token: 16 x 1,024 x 4, padded."""
    monkeypatch.setattr(launch, "triton_obstacle", lambda device_type: None)
    found = routing.simple_routing(votes, 2, backend="triton")
    assert torch.equal(found, routing.simple_routing(votes, 2, backend="eager"))


def test_a_fused_kernel_that_fails_is_one_line_with_the_fix(monkeypatch):
    """The forward kernel may build and the backward kernel may not."""
    monkeypatch.setattr(launch, "triton_obstacle", lambda device_type: None)
    for forward, part in ((fail, "simple_kernel"), (simple.OPERATOR.precise, "the gradient")):
        launchers = SimpleNamespace(forward=forward, backward=fail)
        monkeypatch.setattr(launch.TritonKernel, "launch", lambda self, chosen=launchers: chosen)
        with pytest.raises(RuntimeError, match=rf"on {part} \(no compiler\); use auto or eager"):
            train(random(2, 3, 4, 2), backend="triton").sum().backward()


WIDE = ("--encoder-embed-dim=512", "--decoder-embed-dim=512")  # whose matrices are packed


def written_in_part(model: nn.Module) -> None:
    """As who prunes heads writes to what was taken before the last translation."""
    taken = [parameter.data for parameter in model.parameters()]
    scores_of(FairseqTask.build_generator, model)
    for numbers in taken:
        numbers[1:].mul_(1.1)


def written_in_inference_mode(model: nn.Module) -> None:
    with torch.inference_mode():
        for parameter in model.parameters():
            parameter[1:].mul_(1.1)


def stepped_by(name: str) -> Callable[[nn.Module], None]:
    """One is fused; fairseq's ``adam`` writes to the data, as also a moving average does."""

    def step(model: nn.Module) -> None:
        args = parse("capsnmt_transformer", "--optimizer", name, "--lr", "0.02")
        parameters = [*model.parameters()]
        optimizer = build_optimizer(convert_namespace_to_omegaconf(args).optimizer, parameters)
        optimizer.set_lr(0.02)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    return step


def loaded(model: nn.Module) -> None:
    """Parameters without a version."""
    state = {name: 1.1 * tensor for name, tensor in model.state_dict().items()}
    with torch.inference_mode():
        model.load_state_dict(state)


def replaced(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = 1.1 * parameter.data


def given_others(model: nn.Module) -> None:
    for module in model.modules():
        for name, parameter in [*module.named_parameters(recurse=False)]:
            setattr(module, name, nn.Parameter(1.1 * parameter.detach()))


def torchs(model: nn.Module) -> None:
    fused = has_fused_kernel(torch.device("cpu"))  # torch >= 2.3
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, fused=fused)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


CHANGES = {
    "fused_adam": stepped_by("fused_adam"),
    "adam": stepped_by("adam"),
    "torch's": torchs,
    "data in part": written_in_part,
    "inference": written_in_inference_mode,
    "replaced": replaced,
    "loaded": loaded,
    "other parameters": given_others,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_prepared_model_that_changes_translates_as_one_that_is_new(change: str) -> None:
    ours, fairseqs = FairseqTask.build_generator, FairseqTask.build_generator.__wrapped__
    with torch.inference_mode(change == "inference"):  # whose parameters count no changes
        model = prepared(*WIDE, dtype=torch.float32)
    before = scores_of(ours, model)
    CHANGES[change](model)
    expected = scores_of(fairseqs, copy.deepcopy(model))
    assert (expected - before).abs().max() > 0.1
    torch.testing.assert_close(scores_of(ours, model), expected, rtol=0, atol=0.02)
    with torch.no_grad():
        torch.testing.assert_close(scores_of(fairseqs, model), expected, rtol=0, atol=0.02)


def test_a_prepared_map_computes_in_the_precision_of_autocast() -> None:
    module, x = prepared_linear()[1], torch.randn(3, 512)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module(x), F.linear(x, *module.parameters()))


@pytest.mark.skipif(
    not hasattr(torch.compiler, "is_dynamo_compiling"),
    reason="a torch before 2.3 does not say whether it records",
)
@pytest.mark.parametrize("made", [prepared_linear, lambda: HeadRouting(D, 2, backend="cpp")])
def test_one_graph_holds_what_evaluates_faster_without_it(made: Callable[[], nn.Module]) -> None:
    module = made().eval()
    with torch.no_grad():
        compiled = torch.compile(module, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(X[0]), module(X[0]))


def test_nothing_gets_the_memory_of_a_packed_matrix_while_it_is_known() -> None:
    """Whatever else lay there would be taken for it."""
    module, freed = prepared_linear(), []
    weight = next(module[1].parameters())
    with torch.no_grad():
        module(X[0])
        weakref.finalize(weight.untyped_storage(), freed.append, True)
        weight.data = 1.1 * weight
        assert not freed
        module(X[0])  # packs the other one
    assert freed


def test_a_copy_of_a_prepared_map_is_of_the_class_that_others_look_for() -> None:
    """torch's quantize_dynamic copies a model, and quantises the modules of that class alone."""
    module = linear_maps().apply(prepare)
    with torch.no_grad():
        expected = module(X[0])
        for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            torch.testing.assert_close(copied(X[0]), expected)
            assert {type(each) for each in copied} == {nn.Linear}
    weights = [parameter for parameter in module.parameters() if parameter.dim() == 2]
    assert not any(weight.is_exposed for weight in weights), "it is packed as before"
    # of which quantize_dynamic(inplace=True) asks
    assert {type_before_parametrizations(each) for each in module} == {nn.Linear}


def test_whoever_takes_a_parameter_of_a_prepared_map_gets_torchs() -> None:
    """nn.Parameter, and so torch's weight normalisation, refuse any other class."""
    module, normalise = linear_maps(), torch.nn.utils.parametrizations.weight_norm
    expected = copy.deepcopy(module)
    module.apply(prepare)
    with torch.no_grad():
        module(X[0])
        for each in (expected, module):
            normalise(each[1]).parametrizations.weight.original0.mul_(2)
            each[2].weight = nn.Parameter(each[2].weight)
            each[2].weight[1] = 0
        torch.testing.assert_close(module(X[0]), expected(X[0]))


def test_the_products_of_a_search_are_counted_as_without_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of attention to slots, and of values over depth."""
    flags = ("--layer-aggregation=attention-residuals", *NORM)
    counts = []
    for built in (build.is_built, lambda name: False):
        monkeypatch.setattr(build, "is_built", built)
        model = prepared(*flags, dtype=torch.float32)
        with FlopCounterMode(display=False) as counter:
            scores_of(FairseqTask.build_generator, model)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_what_surrounds_a_search_changes_no_translation() -> None:
    model = prepared(*WIDE, dtype=torch.float32)
    options = Namespace(**{**vars(GenerationConfig()), "max_len_b": 40})
    search = FairseqTask.build_generator(TRANSLATION, [model], options)
    found = [search.generate([model], {"net_input": SOURCE})]
    for around in (torch.device("meta"), torch.inference_mode()):
        with around:
            found.append(search.generate([model], {"net_input": SOURCE}))
    torch.set_default_dtype(torch.float64)
    try:
        found.append(search.generate([model], {"net_input": SOURCE}))
    finally:
        torch.set_default_dtype(torch.float32)
    for each in found[1:]:
        assert_same_hypotheses(each, found[0])
