"""Small models, batches and naive numbers for the tests of analyses."""

from __future__ import annotations

import functools
import math
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Tuple, Type

import torch
from torch import Tensor

from capsnmt.analysis.base import Analysis
from capsnmt.analysis.forward_pass import Batch
from capsnmt.analysis.observation import observe
from capsnmt.analysis.system import batch_of
from capsnmt.modules.attention import Attention
from tests.support import PAD, TASK, batch, sentences, shifted

SOURCES, TARGETS = (5, 2, 4), (3, 6, 1)


def make_batch(left_pad: bool, first: int = 0) -> Batch:
    """Return a batch of three sentences whose sources are padded on one side."""
    source = batch(sentences(*SOURCES, seed=first), left_pad)
    target = batch(sentences(*TARGETS, seed=first + 1), left_pad=False)
    inputs = {
        "src_tokens": source,
        "src_lengths": source.ne(PAD).sum(1),
        "prev_output_tokens": shifted(target),
    }
    ids = torch.arange(first, first + len(source))
    return batch_of({"id": ids, "net_input": inputs, "target": target}, TASK)


def run(analysis: Type[Analysis], model: Any, *batches: Batch) -> Any:
    """Return an analysis of the model after some batches."""
    found = analysis(SimpleNamespace(name="it", model=model, task=TASK))
    for each in batches:
        observe(model, each, [found])
    found.finish()
    return found


@contextmanager
def returned_weights(model: torch.nn.Module) -> Iterator[Dict[Tuple[str, int], Tensor]]:
    """Collect the weights ``[H, B, L, K]`` that each attention returns, by role and layer."""
    found: Dict[Tuple[str, int], Tensor] = {}
    attentions = [module for module in model.modules() if isinstance(module, Attention)]

    def asking(attention: Attention, *args: Any, **kwargs: Any) -> Any:
        kwargs.update(need_weights=True, need_head_weights=True)
        output, weights = Attention.forward(attention, *args, **kwargs)
        layer = 1 + sum(role == attention.role for role, _ in found)
        found[attention.role, layer] = weights
        return output, weights

    for attention in attentions:
        attention.forward = functools.partial(asking, attention)
    try:
        yield found
    finally:
        for attention in attentions:
            del attention.forward


def pass_through(model: Any, batch: Batch) -> Tensor:
    """Run the model as a user does; return its logits."""
    inputs = batch.sample["net_input"]
    with torch.no_grad():
        return model(inputs["src_tokens"], inputs["src_lengths"], inputs["prev_output_tokens"])[0]


def real_positions(mask: Tensor) -> List[int]:
    """Return the columns of the real tokens of one sentence, in order."""
    return [column for column, real in enumerate(mask.tolist()) if real]


def naive_attention(
    weights: Dict[Tuple[str, int], Tensor], batch: Batch
) -> Dict[Tuple[str, int, int], Tuple[float, float, float]]:
    """Return distance, one-sided distance and entropy by role, layer and head, token by token."""
    found = {}
    for (role, layer), of_layer in weights.items():
        for head, of_head in enumerate(of_layer, 1):
            far = near = far_weight = near_weight = spread = 0.0
            queries = 0
            for number in range(of_head.size(0)):
                query_mask = (batch.source if role == "enc-self" else batch.target)[number]
                key_mask = (batch.target if role == "dec-self" else batch.source)[number]
                for i, query in enumerate(real_positions(query_mask)):
                    queries += 1
                    for j, key in enumerate(real_positions(key_mask)):
                        w = of_head[number, query, key].item()
                        far, far_weight = far + w * abs(i - j), far_weight + w
                        if j <= i:
                            near, near_weight = near + w * (i - j), near_weight + w
                        if w:
                            spread -= w * math.log(w)
            found[role, layer, head] = far / far_weight, near / near_weight, spread / queries
    return found
