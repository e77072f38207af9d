"""Shared by the tests of sentence classifiers: a task, small models, their combinations."""

import functools
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence, Tuple

import fairseq.models
import torch
from torch import Tensor, nn

from capsnmt.models.config import SwitchesConfig
from capsnmt.models.switches import declared, flag
from capsnmt.modules.algorithms import OF_HEADS, OF_LAYERS
from tests import support
from tests.support import PAD, SYSTEMS, TASK, batch, randomise_special_starts

SMALL = [
    *("--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24", "--encoder-layers", "2"),
    *("--encoder-attention-heads", "4", "--dropout", "0"),
]
CLASSES = 5
OF_THE_DECODER = {
    *(flag(name) for name, each in declared(SwitchesConfig).items() if each.of_decoder),
    *("--decoder-normalize-before", "--head-aggregation-attention", "--layer-aggregation-side"),
}
parse = functools.partial(support.parse, task="logical_inference")
POOLINGS = ((), ("--pooling", "queries", "--pooling-queries", "3"))


def make_task(num_sentences: int = 2) -> Any:
    return SimpleNamespace(
        source_dictionary=TASK.source_dictionary,
        target_dictionary=None,
        num_sentences=num_sentences,
        num_classes=CLASSES,
        cfg=SimpleNamespace(),
    )


def build(
    *flags: str, arch: str = "probing_transformer", num_sentences: int = 2, task: Any = None
) -> nn.Module:
    """Build a small classifier from its command line, in evaluation mode."""
    torch.manual_seed(1)
    args = parse(arch, *SMALL, *flags)
    return fairseq.models.build_model(args, task or make_task(num_sentences)).eval()


def _encoder_only(flags: Sequence[str]) -> Tuple[str, ...]:
    """Return the flags of a translation system that affect its encoder."""
    pairs: Dict[str, List[str]] = {}
    for word in flags:
        if word.startswith("--"):
            pairs[word] = []
        else:
            pairs[list(pairs)[-1]].append(word)
    for name in OF_THE_DECODER:
        pairs.pop(name, None)
    if pairs.get("--layer-aggregation") == ["transparent"]:
        del pairs["--layer-aggregation"]
    routed = "--capsule-routing-encoder" in pairs
    routed |= pairs.get("--head-aggregation", [""])[0] in OF_HEADS
    routed |= pairs.get("--layer-aggregation", [""])[0] in OF_LAYERS
    if not routed:
        pairs.pop("--routing-iterations", None)
    return tuple(word for name, values in pairs.items() for word in (name, *values))


def _systems() -> Dict[str, Tuple[str, ...]]:
    """Return the encoders of the translation systems, with each pooling in turn."""
    distinct = dict.fromkeys(_encoder_only(flags) for _, flags in SYSTEMS.values())
    systems = {}
    for place, flags in enumerate(distinct):
        with_pooling = (*flags, *POOLINGS[place % len(POOLINGS)])
        systems[" ".join(with_pooling).replace("--", "") or "baseline"] = with_pooling
    return systems


SENTENCE_SYSTEMS = _systems()


def build_system(name: str, *flags: str) -> nn.Module:
    """Build one of ``SENTENCE_SYSTEMS``, with random numbers in every parameter."""
    return randomise_special_starts(build(*SENTENCE_SYSTEMS[name], *flags))


def classify(
    model: nn.Module, first: Sequence[Tensor], second: Sequence[Tensor], left_pad: bool = True
) -> Tensor:
    """Return the logits of pairs of sentences."""
    tokens = batch([*first, *second], left_pad)
    return model(tokens, tokens.ne(PAD).sum(1))
