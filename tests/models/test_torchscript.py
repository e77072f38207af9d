"""TorchScript: what fairseq's Transformer can, ours can, with the same outputs at other lengths."""

from __future__ import annotations

import itertools
from io import BytesIO
from typing import Any, Dict, Iterator, List, Tuple

import pytest
import torch
import torch.nn as nn
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from tests.support import (
    CAPSULES,
    EVERYWHERE,
    PAD,
    SYSTEMS,
    TASK,
    batch,
    build_system,
    sentences,
    shifted,
)

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
# TorchScript's own optimisation of the first calls would take most of the time
pytestmark = pytest.mark.usefixtures("unoptimised")
ARCHITECTURES = [arch for arch, flags in SYSTEMS.values() if not flags]
CONNECTED = "transformer_dlcl"
NORM = ("--encoder-normalize-before", "--decoder-normalize-before")
POST_NORM = ("--mlmha", "M-00")
# pre-norm, every source, routed heads in all places, routed layers, both capsule routings
MANY = (
    *("--head-aggregation", "em", *EVERYWHERE, "--mlmha", "M-00", *CAPSULES, *NORM),
    *("--layer-aggregation", "em-routing", "--capsule-routing-decoder", "horizontal"),
)
# The first two have every kind of mechanism, and run with every commit (the first on both hosts);
# the others run at night.
MODELS = {
    "many mechanisms": ("capsnmt_transformer", MANY),
    **{arch: (arch, ()) for arch in (CONNECTED, *ARCHITECTURES)},
}
every_model = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=marks)
        for name, marks in itertools.zip_longest(
            MODELS, [(), pytest.mark.one_host], fillvalue=pytest.mark.nightly
        )
    ],
)


@pytest.fixture
def unoptimised() -> Iterator[None]:
    """Run TorchScript as it was compiled."""
    with torch.jit.optimized_execution(False):
        yield


def arguments(*lengths: int) -> Tuple[Tensor, Tensor, Tensor]:
    """A padded batch as the arguments of a model: source, its lengths, the decoder's input."""
    source = batch(sentences(*lengths), left_pad=True)
    target = batch(sentences(*reversed(lengths), seed=1), left_pad=False)
    return source, source.ne(PAD).sum(1), shifted(target)


class Logits(nn.Module):
    """A model that returns its logits only: a trace cannot return a dictionary with ``None``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor, previous: Tensor) -> Tensor:
        return self.model(source, lengths, previous)[0]


def saved_and_loaded(module: Any) -> Any:
    """A scripted or traced module after a round trip through a file, where no Python is left."""
    file = BytesIO()
    torch.jit.save(module, file)
    return torch.jit.load(BytesIO(file.getvalue()))


def build_model(name: str) -> nn.Module:
    arch, flags = MODELS[name]
    return build_system(arch, *flags)


def generator(model: nn.Module) -> SequenceGenerator:
    return SequenceGenerator([model], TASK.target_dictionary, beam_size=3, max_len_b=12)


def assert_translates_the_same(scripted: Any, eager: SequenceGenerator) -> None:
    source, lengths, _ = arguments(9, 7, 2)
    sample: Dict[str, Any] = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    found: List[List[Dict[str, Tensor]]] = scripted(sample)
    for ours, theirs in zip(found, eager(sample)):
        assert len(ours) == len(theirs) == 3
        for one, other in zip(ours, theirs):
            assert one["tokens"].equal(other["tokens"])
            torch.testing.assert_close(one["score"], other["score"], **TOLERANCE)


@every_model
def test_a_scripted_model_and_its_generator_compute_the_same(name: str) -> None:
    """Test a model as a module and in the host's search, from a file."""
    model = build_model(name)
    scripted = saved_and_loaded(torch.jit.script(generator(model)))
    assert_translates_the_same(scripted, generator(model))
    given = arguments(11, 2, 8)
    inner = scripted.model.single_model
    torch.testing.assert_close(inner(*given)[0], model(*given)[0], **TOLERANCE)


@every_model
def test_a_traced_model_computes_the_same_at_other_lengths(name: str) -> None:
    model = build_model(name)
    # fairseq's tables of positions and masks grow, and a trace keeps them
    model(*arguments(14, 14))
    # one trace with gradients, where routing could choose a compiled kernel
    with torch.set_grad_enabled(name == "many mechanisms"):
        traced = saved_and_loaded(torch.jit.trace(Logits(model), arguments(5, 3)))
    for lengths in ((5, 3), (11, 2, 8)):
        given = arguments(*lengths)
        torch.testing.assert_close(traced(*given), model(*given)[0], **TOLERANCE)


@pytest.mark.parametrize(
    ("mode", "around"),
    [
        pytest.param("dlcl", POST_NORM, id="dlcl, post-norm"),
        pytest.param("dense", NORM, id="dense, pre-norm"),
        pytest.param("dlcl", NORM, id="dlcl, pre-norm", marks=pytest.mark.nightly),
        pytest.param("dense", POST_NORM, id="dense, post-norm", marks=pytest.mark.nightly),
    ],
)
def test_connected_layers_are_scripted_in_a_copy(mode: str, around: Tuple[str, ...]) -> None:
    model = build_system("capsnmt_transformer", "--layer-aggregation", mode, *around)
    names = list(model.state_dict())
    scripted = saved_and_loaded(torch.jit.script(model))
    assert list(model.state_dict()) == names
    for lengths in ((5, 3), (11, 2, 8)):  # nothing is left of the pass before
        given = arguments(*lengths)
        torch.testing.assert_close(scripted(*given)[0], model(*given)[0], **TOLERANCE)


def test_a_connected_stack_alone_is_refused_in_one_line() -> None:
    """Its Python would be skipped silently, and the stack be another one."""
    with pytest.raises(SystemExit, match=r"torch\.jit\.script: .*: script the model"):
        torch.jit.script(build_system(CONNECTED).encoder)


def test_a_scripted_model_ignores_autocast() -> None:
    """Test the Transformer without mechanisms, too."""
    model = build_system("capsnmt_transformer", "--autocast", "bf16")
    scripted = torch.jit.script(model)
    for stack in (model.encoder, model.decoder):
        stack.autocast = "none"
    given = arguments(5, 3)
    torch.testing.assert_close(scripted(*given)[0], model(*given)[0], **TOLERANCE)


def test_a_model_that_was_trained_compiled_is_scripted() -> None:
    model = build_system("capsnmt_transformer", "--compile")
    given = arguments(5, 3)
    torch.testing.assert_close(torch.jit.script(model)(*given)[0], model(*given)[0], **TOLERANCE)
