"""Shared by the tests of models: small models built through the real command-line parser."""

import argparse
import copy
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterable, List, Sequence, Tuple

import fairseq.models
import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY
from fairseq.tasks.fairseq_task import StatefulContainer
from torch import Tensor
from torch.nn.functional import pad

import capsnmt.plugin
from capsnmt.models.config import ATTENTIONS, defaults
from capsnmt.modules.capsule_attention import DECODER_ROUTINGS, ENCODER_ROUTINGS
from capsnmt.modules.head_aggregation import HEAD_AGGREGATIONS
from capsnmt.modules.layer_aggregation import LAYER_AGGREGATIONS
from capsnmt.modules.multi_layer_attention import VARIANTS
from capsnmt.routing.backend import compile_obstacle

PLUGIN = str(Path(capsnmt.__file__).parent)
REPO = Path(__file__).resolve().parent.parent
WORDS = 24
NO_COMPILER = compile_obstacle("cpu")
needs_compiler = pytest.mark.skipif(bool(NO_COMPILER), reason=f"torch.compile {NO_COMPILER}")

# flags that switch on each kind of routing, and pre-norm stacks
HEADS = ("--head-aggregation", "em")
LAYERS = ("--layer-aggregation", "em-routing")
NORM = ("--encoder-normalize-before", "--decoder-normalize-before")
ONE_LAYER = ("--encoder-layers", "1", "--decoder-layers", "1")
DROP = ("--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5")
CAPSULES = ("--capsule-routing-encoder", "both")
# small dimensions, otherwise the architecture's settings; without dropout properties are exact
SMALL = [
    *("--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24", "--encoder-layers", "2"),
    *("--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "24", "--decoder-layers", "2"),
    *("--encoder-attention-heads", "4", "--decoder-attention-heads", "4"),
    *("--dropout", "0", "--share-decoder-input-output-embed"),
]


def task_of(size: int) -> Any:
    """Return a task with one dictionary of a size, sufficient to build models and decode."""
    dictionary = Dictionary()
    for word in range(size - len(dictionary)):
        dictionary.add_symbol(f"w{word}")
    both = {"source_dictionary": dictionary, "target_dictionary": dictionary}
    return SimpleNamespace(**both, state=StatefulContainer())


FIRST = 4
TASK = task_of(FIRST + WORDS)
PAD, EOS = TASK.source_dictionary.pad(), TASK.source_dictionary.eos()


@functools.cache
def parse_once(task: str, *flags: str) -> argparse.Namespace:
    """Parse the flags of a task as fairseq-train does; callers must copy the result."""
    parser = options.get_training_parser(task)
    return options.parse_args_and_arch(
        parser, ["data", "--user-dir", PLUGIN, "--task", task, *flags]
    )


def parse(arch: str, *flags: str, task: str = "translation") -> argparse.Namespace:
    return copy.deepcopy(parse_once(task, "--arch", arch, *flags))


def build(arch: str, *flags: str, small: bool = True, seed: int = 1) -> torch.nn.Module:
    torch.manual_seed(seed)
    args = parse(arch, *(SMALL if small else ()), *flags)
    return fairseq.models.build_model(args, TASK).eval()


EVERYWHERE = ("--head-aggregation-attention", ",".join(ATTENTIONS))
# switch -> its values; the first one switches it off
VALUES: Dict[str, Tuple[str, ...]] = {
    "--head-aggregation": HEAD_AGGREGATIONS,
    "--head-aggregation-attention": (*ATTENTIONS, EVERYWHERE[1]),
    "--head-capsules": ("0", "4"),
    "--head-capsule-norm": ("no", "yes"),
    "--head-composition-rank": ("2", "1"),
    "--layer-aggregation": LAYER_AGGREGATIONS,
    "--layer-aggregation-side": ("both", "encoder", "decoder"),
    "--layer-capsules": ("0", "4"),
    "--layer-capsule-input": ("all", "own"),
    "--attention-residuals-block": ("1", "2"),
    "--mlmha": ("none", *VARIANTS),
    "--mlmha-sources": ("0", "1"),
    "--surface-fusion": ("0", "0.2"),
    "--capsule-routing-encoder": ENCODER_ROUTINGS,
    "--capsule-routing-decoder": DECODER_ROUTINGS,
    "--capsule-routing-encoder-layers": ("all", "2"),
    "--routing-iterations": ("3", "1"),
    "--routing-coefficients": ("agreement", "random"),
    "--encoder-embed-dim": ("16", "24"),
    "--encoder-normalize-before": ("no", "yes"),
    "--decoder-normalize-before": ("no", "yes"),
}


def flags_of(values: Dict[str, str]) -> Tuple[str, ...]:
    """Return the flags that set switches of ``VALUES``; a value of "yes" is the flag alone."""
    flags: List[str] = []
    for switch, value in values.items():
        if value != VALUES[switch][0]:
            flags += [switch] if value == "yes" else [switch, value]
    return tuple(flags)


def _architectures() -> List[str]:
    """Return the registered architectures, one of those that differ in size only."""
    distinct = {}
    for arch in ARCH_MODEL_INV_REGISTRY["capsnmt_transformer"]:
        args = argparse.Namespace()
        ARCH_CONFIG_REGISTRY[arch](args)
        distinct.setdefault(tuple(getattr(args, name) for name in defaults()), arch)
    return list(distinct.values())


# Each line is a system; together they have each pair of values of two switches, unless such a pair
# is refused (tests/models/test_properties.py). They were chosen greedily: the first hold the most.
COMBINED = (REPO / "tests" / "combinations.txt").read_text("utf-8").splitlines()
# name -> (architecture, flags): every distinct architecture, and combinations of switches
SYSTEMS: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    **{arch: (arch, ()) for arch in _architectures()},
    **{line.replace("--", ""): ("capsnmt_transformer", tuple(line.split())) for line in COMBINED},
}


def with_every_commit(count: int, names: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrize a test by ``name``: with every commit the first few, at night the others."""
    given = [
        pytest.param(name, marks=[pytest.mark.nightly] * (place >= count))
        for place, name in enumerate(names)
    ]
    return pytest.mark.parametrize("name", given)


# Each combination is made of switches that the architectures and the oracles have. The first few
# combinations hold the most pairs of values.
EVERY_COMMIT = sum(not flags for _, flags in SYSTEMS.values()) + 6
every_system = with_every_commit(EVERY_COMMIT, SYSTEMS)


@torch.no_grad()
def randomise_special_starts(model: torch.nn.Module) -> torch.nn.Module:
    """Add random numbers to the parameters that start as zeros, as ones or as an identity.

    There, biases, gains, the betas of EM routing and the maps over heads would be tested at one
    special point only.
    """
    for parameter in model.parameters():
        if parameter.unique().numel() <= 2:
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def build_system(name: str, *flags: str) -> torch.nn.Module:
    arch, own = SYSTEMS[name]
    return randomise_special_starts(build(arch, *own, *flags))


def sentences(*lengths: int, seed: int = 0) -> List[Tensor]:
    """Draw random sentences of these lengths, plus EOS."""
    generator = torch.Generator().manual_seed(seed)
    words = (torch.randint(FIRST, FIRST + WORDS, (n,), generator=generator) for n in lengths)
    return [pad(each, (0, 1), value=EOS) for each in words]


def batch(lines: Sequence[Tensor], left_pad: bool) -> Tensor:
    """Collate sentences into one padded batch ``[B, L]``."""
    return collate_tokens(list(lines), PAD, left_pad=left_pad)


def encoder_input(lines: Sequence[Tensor], left_pad: bool = True) -> Dict[str, Tensor]:
    source = batch(lines, left_pad)
    return {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}


def shifted(target: Tensor) -> Tensor:
    """Return the decoder's input for right-padded targets: shifted right by one, EOS first."""
    return pad(target[:, :-1].masked_fill(target[:, :-1].eq(EOS), PAD), (1, 0), value=EOS)


def forward(
    model: torch.nn.Module,
    sources: Sequence[Tensor],
    targets: Sequence[Tensor],
    left_pad: bool = True,
) -> Tensor:
    """Return logits ``[B, L, V]``; targets are padded on the right."""
    previous = shifted(batch(targets, left_pad=False))
    return model(**encoder_input(sources, left_pad), prev_output_tokens=previous)[0]


def half_precision() -> List[torch.dtype]:
    """Return the dtypes of half precision in which this torch computes on the CPU."""
    try:
        torch.nn.functional.layer_norm(torch.ones(2, dtype=torch.float16), (2,))
    except RuntimeError:
        return [torch.bfloat16]
    return [torch.bfloat16, torch.float16]


HALF = half_precision()


def assert_every_parameter_learns(model: torch.nn.Module) -> None:
    """Check after a backward pass that every parameter has a finite, nonzero gradient."""
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # the bias of the keys adds a constant to every score of a row: its gradient is zero
        if not name.endswith("k_proj.bias"):
            assert parameter.grad.abs().max() > 0, name
