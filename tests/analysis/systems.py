"""Small models as systems under analysis, and what they compute of each sentence alone."""

from __future__ import annotations

import functools
from typing import Any, Dict, Iterable, List, Sequence, Tuple, Type

import torch
from fairseq.data import LanguagePairDataset
from torch import Tensor

from capsnmt.analysis.base import Analysis
from capsnmt.analysis.hooks import observe
from capsnmt.analysis.model import System
from capsnmt.modules.attention import Attention
from capsnmt.routing.recording import RoutingRecord, record_routing
from tests.support import TASK, build, sentences, shifted

LENGTHS = (5, 2, 7, 4, 3)
BATCHES = ((0, 1, 2), (3, 4))


def system_of(
    model: Any,
    left_pad: bool = True,
    name: str = "system",
    numbers: Sequence[Sequence[int]] = BATCHES,
    seed: int = 0,
    **settings: Any,
) -> System:
    """Return a model as a system, with five sentences in two batches that need padding.

    Args:
        model: the model, in evaluation mode.
        left_pad: pad the sources on the left, as fairseq does by default, or on the right.
        name: its name.
        numbers: the sentences of each batch.
        seed: of the sentences.
        settings: other fields of the system.
    """
    dictionary = TASK.source_dictionary
    sources, targets = corpus(seed)
    dataset = LanguagePairDataset(
        *(sources, [len(line) for line in sources], dictionary),
        *(targets, [len(line) for line in targets], dictionary),
        left_pad_source=left_pad,
        left_pad_target=False,
        shuffle=False,
    )
    return System(name, model, TASK, dataset, numbers, **settings)


def corpus(seed: int = 0) -> Tuple[List[Tensor], List[Tensor]]:
    """Return the sources and the targets."""
    return sentences(*LENGTHS, seed=seed), sentences(*LENGTHS[::-1], seed=seed + 1)


def analysed(kind: Type[Analysis], system: System) -> Any:
    """Return a finished analysis of a system."""
    analysis = kind(system)
    for batch in system.batches():
        observe(system.model, batch, [analysis])
    analysis.finish()
    return analysis


def precise(arch: str, *flags: str, seed: int = 1) -> Any:
    """Return a small model in fp64 whose parameters are random, also those that start constant."""
    model = build(arch, *flags, seed=seed).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.unique().numel() <= 2:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


@torch.no_grad()
def logits_of_each_sentence(model: Any) -> Iterable[Tensor]:
    """Yield the logits ``[T, V]`` of each sentence, computed alone and without padding."""
    for source, target in zip(*corpus()):
        yield model(source[None], torch.tensor([len(source)]), shifted(target[None]))[0][0]


@torch.no_grad()
def states_of_each_sentence(model: Any, stack: str) -> List[List[Tensor]]:
    """Return H^0..H^L ``[tokens, d]`` of each sentence, computed alone and without padding."""
    found = []
    for source, target in zip(*corpus()):
        encoded = model.encoder(
            source[None], src_lengths=torch.tensor([len(source)]), return_all_hiddens=True
        )
        states = encoded["encoder_states"]
        if stack == "encoder-output":
            states = encoded["encoder_out"][0].split(model.encoder.embed_tokens.embedding_dim, -1)
        if stack == "decoder":
            states = model.decoder(shifted(target[None]), encoder_out=encoded)[1]["inner_states"]
        found.append([state[:, 0] for state in states])
    return found


def couplings_of_each_sentence(model: Any) -> Iterable[List[RoutingRecord]]:
    """Yield the calls of routing operators that each sentence makes alone."""
    logits = iter(logits_of_each_sentence(model))
    for _ in LENGTHS:
        with record_routing() as records:
            next(logits)
        yield records


def weights_of_each_sentence(model: Any) -> Iterable[Dict[Tuple[str, int], Tensor]]:
    """Yield the weights ``[H, L, K]`` that each attention returns, by role and layer."""
    found: Dict[Tuple[str, int], Tensor] = {}
    attentions = [module for module in model.modules() if isinstance(module, Attention)]

    def asking(attention: Attention, *args: Any, **kwargs: Any) -> Any:
        kwargs.update(need_weights=True, need_head_weights=True)
        output, weights = Attention.forward(attention, *args, **kwargs)
        layer = 1 + sum(role == attention.role for role, _ in found)
        found[attention.role, layer] = weights[:, 0]
        return output, weights

    logits = iter(logits_of_each_sentence(model))
    for _ in LENGTHS:
        found.clear()
        for attention in attentions:
            attention.forward = functools.partial(asking, attention)
        next(logits)
        for attention in attentions:
            del attention.forward
        yield dict(found)


def loss_of_each_sentence(model: Any) -> List[float]:
    """Return the cross-entropy of each sentence, computed alone and without padding."""
    found = []
    for logits, target in zip(logits_of_each_sentence(model), corpus()[1]):
        scores = zip(logits, target.tolist())
        found.append(sum((row.logsumexp(0) - row[word]).item() for row, word in scores))
    return found


def loss_per_token(model: Any) -> float:
    """Return the cross-entropy of the corpus per target token, in nats."""
    return sum(loss_of_each_sentence(model)) / sum(map(len, corpus()[1]))
