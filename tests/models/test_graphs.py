"""The model as graphs: training compiled by torch.compile, and programs of torch.export."""

import functools
from typing import Any, Iterator, List, Tuple

import pytest
import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

from capsnmt.cli import ConfigurationError
from capsnmt.models import compilation
from capsnmt.modules.disagreement import record_disagreement
from capsnmt.modules.shortcuts import SHORTCUTS
from tests.support import (
    EVERY_COMMIT,
    HEADS,
    ONE_LAYER,
    PAD,
    SYSTEMS,
    batch,
    build,
    encoder_input,
    needs_compiler,
    randomise_special_starts,
    sentences,
    shifted,
    with_every_commit,
)

LENGTHS = (5, 7, 3), (2, 6, 4)  # of source and target
MANY = (
    # each layer and each iteration is traced
    *(*HEADS, "--head-aggregation-attention", "enc-self,enc-dec"),
    *("--head-aggregation-encoder-layers", "1", "--capsule-routing-encoder-layers", "2"),
    *("--layer-aggregation", "em-routing", "--mlmha", "M-10", "--encoder-normalize-before"),
    *("--capsule-routing-encoder", "both", "--capsule-routing-decoder", "horizontal"),
    *("--routing-iterations", "2", "--decoder-layers", "1"),
)
MODELS = {"many mechanisms": ("capsnmt_transformer", MANY), **SYSTEMS}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[List[Any]]:
    """The graphs that were recorded; they run as they are, for generating code takes minutes."""
    found: List[Any] = []

    def record(graph: Any, _: Any) -> Any:
        found.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=record))
    compilation.compiled.cache_clear()
    torch._dynamo.reset()
    yield found
    compilation.compiled.cache_clear()
    torch._dynamo.reset()


def models(name: str, *depth: str) -> Tuple[nn.Module, nn.Module]:
    arch, flags = MODELS[name][0], (*MODELS[name][1], *depth)
    pair = [randomise_special_starts(build(arch, *flags, *more)) for more in (("--compile",), ())]
    # in fp64, where routing does not multiply the rounding of other products to visible sizes
    return pair[0].double().train(), pair[1].double().train()


def arguments(source: Tuple[int, ...], target: Tuple[int, ...]) -> Tuple[Tensor, Tensor, Tensor]:
    previous = shifted(batch(sentences(*target, seed=1), left_pad=False))
    return (*encoder_input(sentences(*source)).values(), previous)


def outputs_and_gradients(model: nn.Module, given: Any) -> List[Tensor]:
    torch.manual_seed(5)  # of dropped heads
    logits = model(*given)[0][given[2].ne(PAD)]  # what a padded word has is read by nobody
    loss = (logits * torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))).sum()
    parameters = [each for each in model.parameters() if each.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [logits, *(each for each in gradients if each is not None)]


def assert_the_same(compiled: nn.Module, eager: nn.Module, given: Any) -> None:
    found, expected = (outputs_and_gradients(model, given) for model in (compiled, eager))
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


@needs_compiler
@with_every_commit(1, MODELS)
def test_values_and_gradients_are_those_of_the_eager_model(name: str, graphs: List[Any]) -> None:
    assert_the_same(*models(name), arguments(*LENGTHS))
    assert len(graphs) == 2


@needs_compiler
@pytest.mark.usefixtures("bf16_machine")
def test_training_alone_is_compiled_in_bf16_too_and_unless_it_is_read(graphs: List[Any]) -> None:
    flags, given = (*ONE_LAYER, "--autocast", "bf16"), arguments(*LENGTHS)
    model, eager = (
        build("capsnmt_transformer", *flags, *more).train() for more in (("--compile",), ())
    )
    model.eval()(*given)
    with record_disagreement({"output"}, {"enc-self", "dec-self"}) as record:
        model.train()(*given)
    assert record.values
    assert not graphs
    found, expected = (outputs_and_gradients(each, given) for each in (model, eager))
    for ours, theirs in ((found[:1], expected[:1]), (found[1:], expected[1:])):
        one, other = (torch.cat([each.double().flatten() for each in x]) for x in (ours, theirs))
        # together: the gradients of the keys' biases are nothing but rounding
        assert (one - other).norm() < 0.05 * other.norm()
    assert found[0].dtype == torch.bfloat16
    assert len(graphs) == 2


@needs_compiler
def test_one_graph_drops_heads_at_every_rate_and_a_later_hook_is_called(graphs: List[Any]) -> None:
    """As fairseq's trainer hangs them up to find where a number is none (``NanDetector``)."""
    flags = (*ONE_LAYER, "--drop-head", "0.5", "--drop-head-fall-updates", "4")
    pair, given = models("capsnmt_transformer", *flags), arguments(*LENGTHS)
    for update in (0, 2, 4):
        for model in pair:
            model.set_num_updates(update)
        assert_the_same(*pair, given)
    for model in pair:
        for stack in (model.encoder, model.decoder):
            stack.layers[0].fc1.register_forward_hook(lambda *all: 2 * all[-1])
    assert_the_same(*pair, given)
    assert len(graphs) == 2


@needs_compiler
def test_batches_of_any_shape_share_graphs(
    graphs: List[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SHORTCUTS, "products_are_faster", lambda q, k: False)  # as on a GPU
    pair = models("capsnmt_transformer", *ONE_LAYER)
    for count, length in ((5, 3), (3, 70), (1, 6), (4, 12)):
        given = arguments((length,) * count, (2 * length,) + (length,) * (count - 1))
        assert_the_same(*pair, given)
    # at first source and target may have the same length, and one sentence is another graph
    assert len(graphs) <= 6
    called = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert any("scaled_dot_product_attention" in name for name in called)
    assert not any("softmax" in name for name in called)


@needs_compiler
def test_what_cannot_be_compiled_is_refused_in_one_line(
    graphs: List[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build("capsnmt_transformer", "--compile").train()
    monkeypatch.setattr(model.encoder, "normalise", lambda states: [states[0] * states[0].item()])
    with pytest.raises(ConfigurationError, match=r"^--compile: .*; train without it$"):
        model(*arguments(*LENGTHS))


SEVERAL = (*HEADS, "--mlmha", "M-10", "--decoder-layers", "1")


class Logits(nn.Module):
    """The scores of the words after a prefix, as a step of decoding computes them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        return self.model.decoder(previous, self.model.encoder(source))[0]


EXPORTED = {"many": ("capsnmt_transformer", SEVERAL), **dict([*SYSTEMS.items()][:EVERY_COMMIT])}


@pytest.mark.skipif(
    TorchVersion(torch.__version__) < (2, 6), reason="its torch.export has no Dim.AUTO"
)
@with_every_commit(1, EXPORTED)
def test_an_exported_model_computes_the_same_at_other_sizes(name: str) -> None:
    arch, flags = EXPORTED[name]
    # positions that a graph can contain come with --compile
    module = Logits(build(arch, "--compile", *flags)).eval()

    def given(*lengths: int) -> Tuple[Tensor, Tensor]:
        source, _, previous = arguments(lengths, lengths[::-1])
        return source, previous

    module(*given(14))  # fairseq's tables of positions and masks grow, and a program keeps them
    auto = torch.export.Dim.AUTO
    shapes = ({0: auto, 1: auto}, {0: auto, 1: auto})
    program = torch.export.export(module, given(7, 4, 5), dynamic_shapes=shapes).module()
    for lengths in ((7, 4, 5), (9, 2)):
        source, previous = given(*lengths)
        # what a padded word has is read by nobody
        found, expected = (each(source, previous)[previous.ne(PAD)] for each in (program, module))
        torch.testing.assert_close(found, expected)
