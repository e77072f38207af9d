"""Attention and coupling coefficients of a few sentences, for the browser of the page."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from capsnmt.analysis.agreement import by_strongest_input
from capsnmt.analysis.base import Analysis, Cell, NotApplicableError
from capsnmt.analysis.forward_pass import AttentionCall, RoutingCall, StackStates
from capsnmt.analysis.plots import PANELS, Figure, matrices

WEIGHT_UNIT = 1000  # attention weights are kept as whole thousandths
COEFFICIENT_UNIT = 100_000  # C is small where there are many output capsules
MOST_COLUMNS = 64  # columns of a map of output capsules
MOST_COEFFICIENTS = 100_000  # of single tokens in one sentence of one system
READABLE = 15  # subwords on the axes of a figure
DRAWN = "enc-self"  # the attention of the figure


@dataclass
class Coupling:
    """C of one place and layer for one sentence.

    Attributes:
        place: as in a call of routing.
        layer: from 1.
        maps: C in units of ``1 / COEFFICIENT_UNIT``, ``[T, choices, rows, columns]``. Rows are
            input capsules and columns output capsules. The first choice is the mean over tokens,
            the others the tokens. Of horizontal routing, rows are the positions l, columns
            the positions t that l reads, and choices the heads, the output capsules.
        group: how many output capsules a column is the mean of.
        capsules: the number of output capsules; 0 if each is a position or head.
    """

    place: str
    layer: int
    maps: np.ndarray
    group: int = 1
    capsules: int = 0

    @property
    def choices(self) -> List[str]:
        """What each choice is: ``mean``, or the number of a token or head; ``all`` if only one."""
        count = self.maps.shape[1]
        if self.place.endswith("-horizontal"):
            return [str(head) for head in range(1, count + 1)]
        if self.place.endswith("-vertical"):
            return ["all"]
        return ["mean", *(str(token) for token in range(1, count))]


@dataclass
class Sentence:
    """What the browser shows of a sentence.

    Attributes:
        source: subwords of the source.
        inputs: subwords of the decoder's input.
        target: subwords of the reference: what the decoder has to predict at each input.
        loss: the negative log-likelihood of each of them, in nats.
        attention: attention and layer -> weights in units of ``1 / WEIGHT_UNIT``, ``[H, L, K]``.
        couplings: C of each place that routes.
    """

    source: List[str] = field(default_factory=list)
    inputs: List[str] = field(default_factory=list)
    target: List[str] = field(default_factory=list)
    loss: List[float] = field(default_factory=list)
    attention: Dict[Tuple[str, int], np.ndarray] = field(default_factory=dict)
    couplings: List[Coupling] = field(default_factory=list)

    def axes(self, attention: str) -> Tuple[List[str], List[str]]:
        """Return the subwords of an attention's queries and keys."""
        queries = self.source if attention == "enc-self" else self.inputs
        keys = self.inputs if attention == "dec-self" else self.source
        weights = self.attention[attention, 1]
        if weights.shape[2] > len(keys):  # --cross-self-attention
            keys = [*self.source, *self.inputs]
        return queries, keys


class Sentences(Analysis):
    """Keeps the first sentences of the chosen ones, in the order of the test set.

    The only analysis that keeps maps: its memory grows with ``browser_sentences``.

    **D**: more than ``MOST_COLUMNS`` output capsules are sorted by their strongest input in the
    last iteration, and neighbours averaged: their order has no meaning of its own. Coefficients of
    single tokens are kept from the first place on, at most ``MOST_COEFFICIENTS`` in a sentence.
    """

    name = "sentences"
    title = "Attention in one sentence"
    explanation = (
        "The weights of all heads of the top encoder layer for one sentence (as Duan et al. 2020, "
        "Figure 5): rows are queries, columns keys, and darker is more."
    )
    columns = ("sentence", "side", "position", "token", "loss")
    map_columns = ("sentence", "attention", "layer", "head", "query", "weights")
    coupling_columns = ("sentence", "place", "layer", "iteration", "of", "row", "coefficients")

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.task = model.task
        count = model.settings.browser_sentences
        if not count:
            raise NotApplicableError("--browser-sentences is 0")
        self.kept: Dict[int, Sentence] = {number: Sentence() for number in model.chosen[:count]}

    def _in_batch(self, numbers: Sequence[int]) -> Iterator[Tuple[int, Sentence]]:
        """Yield the kept sentences of a batch with their places in it."""
        for place, number in enumerate(numbers):
            if number in self.kept:
                yield place, self.kept[number]

    def on_attention(self, call: AttentionCall) -> None:
        for b, sentence in self._in_batch(call.batch.numbers):
            weights = call.weights[b][:, call.queries[b]][..., call.keys[b]]
            sentence.attention[call.place, call.layer] = whole(weights, WEIGHT_UNIT)

    def on_routing(self, call: RoutingCall) -> None:
        for b, sentence in self._in_batch(call.batch.numbers):
            real = call.routings[b]
            group, capsules = 1, 0
            if call.kind == "horizontal":
                # [l, t, heads] -> [heads, l, t]
                maps = [C[b][real][:, real].permute(2, 0, 1) for C in call.coefficients]
            elif call.kind == "vertical":
                maps = [C[b][:, :, call.outputs[b, 0]] for C in call.coefficients]
            else:
                capsules = call.coefficients[0].size(-1)
                maps, group = columns_of([C[b][real] for C in call.coefficients])
                kept = sum(each.maps[:, 1:].size for each in sentence.couplings)
                if kept + sum(C[1:].numel() for C in maps) > MOST_COEFFICIENTS:
                    maps = [C[:1] for C in maps]
            coefficients = whole(torch.stack(maps), COEFFICIENT_UNIT)
            sentence.couplings.append(
                Coupling(
                    call.place if call.kind in ("heads", "layers") else f"{call.place}-{call.kind}",
                    *(call.layer, coefficients, group, capsules),
                )
            )

    def on_states(self, stacks: StackStates) -> None:
        sample = stacks.batch.sample
        for b, sentence in self._in_batch(stacks.batch.numbers):
            target = sample["target"][b]
            sentence.source = self.tokens("source", sample["net_input"]["src_tokens"][b])
            sentence.inputs = self.tokens("target", sample["net_input"]["prev_output_tokens"][b])
            sentence.target = self.tokens("target", target)
            real = stacks.batch.target[b]
            likelihood = stacks.logits[b][real].float().log_softmax(-1)
            loss = -likelihood.gather(-1, target[real].unsqueeze(-1)).squeeze(-1)
            sentence.loss = [round(value, 3) for value in loss.tolist()]

    def tokens(self, side: str, ids: Tensor) -> List[str]:
        """Return the subwords of one sentence, without padding."""
        dictionary = getattr(self.task, f"{side}_dictionary")
        return [dictionary[int(i)] for i in ids if i != dictionary.pad()]

    def rows(self) -> List[Sequence[Cell]]:
        found: List[Sequence[Cell]] = []
        for number, sentence in self.kept.items():
            for position, token in enumerate(sentence.source, 1):
                found.append((number, "source", position, token, None))
            for position, (token, loss) in enumerate(zip(sentence.target, sentence.loss), 1):
                found.append((number, "target", position, token, loss))
        return found

    def tables(self) -> Dict[str, Any]:
        """Return subwords and losses, attention maps, and maps of coupling coefficients."""
        maps: List[Sequence[Cell]] = []
        couplings: List[Sequence[Cell]] = []
        for number, sentence in self.kept.items():
            for (attention, layer), weights in sentence.attention.items():
                for (head, query), row in _rows(weights):
                    maps.append((number, attention, layer, head, query, row(WEIGHT_UNIT)))
            for each in sentence.couplings:
                for (iteration, choice, line), row in _rows(each.maps):
                    of = each.choices[choice - 1]
                    key = number, each.place, each.layer, iteration, of, line
                    couplings.append((*key, row(COEFFICIENT_UNIT)))
        return {
            self.name: (self.columns, self.rows()),
            "maps": (self.map_columns, maps),
            "couplings": (self.coupling_columns, couplings),
        }

    @classmethod
    def figures(cls, systems: Mapping[str, Any]) -> List[Figure]:
        """Draw the first sentence that fits a figure, else the shortest one."""
        numbers = set.intersection(*(set(analysis.kept) for analysis in systems.values()))
        any_system = next(iter(systems.values()))
        lengths = {number: len(any_system.kept[number].source) for number in sorted(numbers)}
        if not lengths:
            return []
        fitting = [number for number, length in lengths.items() if length <= READABLE]
        number = fitting[0] if fitting else min(lengths, key=lambda each: lengths[each])
        sentences: Dict[str, Sentence] = {
            name: analysis.kept[number] for name, analysis in systems.items()
        }
        top = {
            name: max(layer for role, layer in sentence.attention if role == DRAWN)
            for name, sentence in sentences.items()
        }
        weights = {
            name: sentence.attention[DRAWN, top[name]] / WEIGHT_UNIT
            for name, sentence in sentences.items()
        }
        highest = max(float(of_system.max()) for of_system in weights.values())
        return [
            Figure(
                f"attention-sentence-{name}",
                f"Attention weights of each head of {name} for sentence {number}.",
                f"{name}: {PANELS[DRAWN]}, layer {top[name]}, for sentence {number} of the test "
                "set (from 0). The scale is that of all heads and systems.",
                matrices(
                    {f"head {h}": torch.tensor(A) for h, A in enumerate(weights[name], 1)},
                    *("attention weight", "query", "key"),
                    words=sentence.axes(DRAWN),
                    highest=highest,
                ),
            )
            for name, sentence in sentences.items()
        ]


def whole(values: Tensor, unit: int) -> np.ndarray:
    """Return values in whole units of ``1 / unit``."""
    return (values.float() * unit).round().to(torch.int32).cpu().numpy()


def columns_of(coefficients: Sequence[Tensor]) -> Tuple[List[Tensor], int]:
    """Return C of each iteration with at most ``MOST_COLUMNS`` columns.

    Args:
        coefficients: C of each iteration, ``[tokens, I, N]``.

    Returns:
        C of each iteration, ``[1 + tokens, I, columns]``, the mean over tokens first; and how many
        output capsules a column is the mean of.
    """
    maps = [torch.cat([C.mean(0, keepdim=True), C]) for C in coefficients]
    order = by_strongest_input(maps[-1][0])
    group = -(-len(order) // MOST_COLUMNS)
    averaged = [
        torch.stack([part.mean(-1) for part in C[..., order].split(group, dim=-1)], dim=-1)
        for C in maps
    ]
    return averaged, group


def _rows(maps: np.ndarray) -> Iterator[Tuple[Tuple[int, ...], Any]]:
    """Yield the index of each row, from 1, and a function that writes the row in a unit."""
    for index in np.ndindex(*maps.shape[:-1]):
        row = maps[index].tolist()
        yield (
            tuple(i + 1 for i in index),
            lambda unit, row=row: " ".join(f"{value / unit:g}" for value in row),
        )
