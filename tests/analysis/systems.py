"""Small models as systems under analysis, with sentences in memory."""

from __future__ import annotations

from typing import Any, List, Tuple, Type

import torch
from fairseq.data import LanguagePairDataset
from torch import Tensor

from capsnmt.analysis.base import Analysis
from capsnmt.analysis.observation import observe
from capsnmt.analysis.system import System
from tests.support import TASK, build, sentences, shifted

LENGTHS = (5, 2, 7, 4, 3)
BATCHES = ((0, 1, 2), (3, 4))


def system_of(model: Any, left_pad: bool = True, name: str = "system") -> System:
    """Return a model as a system, with five sentences in two batches that need padding.

    Args:
        model: the model, in evaluation mode.
        left_pad: pad the sources on the left, as fairseq does by default, or on the right.
        name: its name.
    """
    dictionary = TASK.source_dictionary
    sources, targets = corpus()
    dataset = LanguagePairDataset(
        *(sources, [len(line) for line in sources], dictionary),
        *(targets, [len(line) for line in targets], dictionary),
        left_pad_source=left_pad,
        left_pad_target=False,
        shuffle=False,
    )
    return System(name, model, TASK, dataset, BATCHES)


def corpus() -> Tuple[List[Tensor], List[Tensor]]:
    """Return the sources and the targets."""
    return sentences(*LENGTHS), sentences(*LENGTHS[::-1], seed=1)


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


@torch.no_grad()
def loss_of_each_sentence(model: Any) -> List[float]:
    """Return the cross-entropy of each sentence, computed alone and without padding."""
    found = []
    for source, target in zip(*corpus()):
        logits = model(source[None], torch.tensor([len(source)]), shifted(target[None]))[0][0]
        scores = zip(logits, target.tolist())
        found.append(sum((row.logsumexp(0) - row[word]).item() for row, word in scores))
    return found


def loss_per_token(model: Any) -> float:
    """Return the cross-entropy of the corpus per target token, in nats."""
    return sum(loss_of_each_sentence(model)) / sum(map(len, corpus()[1]))
