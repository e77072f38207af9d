"""Attention, coupling coefficients and losses of a few sentences, for the browser of the page."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import torch
from torch import Tensor

from capsnmt.analysis import base
from capsnmt.analysis.agreement import by_strongest_input
from capsnmt.analysis.model import lengths_of
from capsnmt.analysis.plots import Figure, in_words, matrices

DRAWN = "enc-self"  # the attention of the figure
READABLE = 15  # subwords on the axes of a figure
LONGEST = 100  # subwords of a sentence in the browser, whose maps grow with their square
MOST_COLUMNS = 64  # of a map of output capsules


@dataclass(frozen=True)
class Axis:
    """What the rows or columns of a map, or a choice among maps, are."""

    name: str
    labels: Sequence[str]
    numbered: bool = False  # whether a label is told by its number: subwords repeat
    chosen: int = 0  # of a choice, what is shown first


@dataclass(frozen=True)
class Map:
    """Maps of one place of a model: their values by choices, row and column."""

    name: str
    place: str
    kind: str  # weights, loss, or what is routed
    layer: int
    choices: Sequence[Axis]
    rows: Axis
    columns: Axis
    values: Any


@dataclass
class Sentence:
    """Subwords of a sentence, and its maps."""

    source: List[str]
    inputs: List[str]  # of the decoder
    target: List[str]  # what it predicts at each input
    attention: List[Map] = field(default_factory=list)
    coefficients: List[Map] = field(default_factory=list)
    loss: List[Map] = field(default_factory=list)


class Sentences(base.Analysis):
    """Keeps the first sentences of the chosen ones, in the order of the test set.

    The only analysis that keeps maps: its memory grows with ``--browser-sentences``. Sentences of
    more than ``LONGEST`` subwords are left out; if there are no others, the shortest is kept.

    **D**: coefficients of heads and layers are means over the tokens of the sentence. Output
    capsules are sorted by their strongest input in the last iteration, and more than
    ``MOST_COLUMNS`` averaged in groups of neighbours: their order has no meaning of its own.
    """

    name = "sentences"
    columns = ("sentence", "side", "position", "token", "loss")
    size = "browser_sentences"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        lengths = lengths_of(model.dataset)
        short = [number for number in model.chosen if lengths[number] <= LONGEST]
        short = short or [min(model.chosen, key=lengths.__getitem__)]
        self.kept: Dict[int, Sentence] = {}
        for number in short[: model.scope.browser_sentences]:
            pair, task = model.dataset[number], model.task
            source, target = (
                [dictionary[int(i)] for i in ids if i != dictionary.pad()]
                for dictionary, ids in (
                    (task.source_dictionary, pair["source"]),
                    (task.target_dictionary, pair["target"]),
                )
            )
            self.kept[number] = Sentence(source, [target[-1], *target[:-1]], target)
        self.log_probs = partial(model.model.get_normalized_probs, log_probs=True)
        self.sentences = len(self.kept)

    def finish(self, model: Any) -> None:
        del self.log_probs  # it keeps the model

    def _in_batch(self, batch: base.Batch) -> Iterator[Tuple[int, Sentence]]:
        """Yield the kept sentences of a batch with their places in it."""
        for b, number in enumerate(batch.numbers):
            if number in self.kept:
                yield b, self.kept[number]

    def on_attention(self, call: base.AttentionCall) -> None:
        for b, sentence in self._in_batch(call.batch):
            weights = call.weights[b][:, call.queries[b]][..., call.keys[b]]
            queries = sentence.source if call.place == "enc-self" else sentence.inputs
            keys = sentence.inputs if call.place == "dec-self" else sentence.source
            if weights.size(2) > len(keys):  # --cross-self-attention
                keys = [*sentence.source, *sentence.inputs]
            heads = Axis("head", ["mean of heads", *numbers(weights.size(0))])
            axes = [heads], Axis("query", queries, True), Axis("key", keys, True)
            values = rounded(torch.cat([weights.mean(0, keepdim=True), weights]), 3)
            name = in_words(call.place, call.layer)
            sentence.attention.append(Map(name, call.place, "weights", call.layer, *axes, values))

    def on_routing(self, call: base.RoutingCall) -> None:
        iterations = len(call.coefficients)
        choices = [Axis("iteration", numbers(iterations), chosen=iterations - 1)]
        routing = f", {call.kind} routing" if call.kind in ("horizontal", "vertical") else ""
        name = in_words(call.place, call.layer) + routing
        for b, sentence in self._in_batch(call.batch):
            real = call.routings[b]
            words = sentence.source if call.place in (DRAWN, "encoder") else sentence.inputs
            positions = Axis("position", words, True)
            C = [each[b] for each in call.coefficients]
            if call.kind == "horizontal":  # [l, t, heads] -> [heads, l, t]
                C = [each[real][:, real].permute(2, 0, 1) for each in C]
                heads = Axis("head", numbers(len(C[0])))
                axes = [*choices, heads], positions, Axis("input", words, True)
            elif call.kind == "vertical":
                C = [each[0][:, call.outputs[b, 0]] for each in C]
                axes = choices, Axis("head", numbers(len(C[0]))), positions
            else:
                C, capsules = with_few_columns([each[real].mean(0) for each in C])
                inputs = Axis(call.kind[:-1], numbers(len(C[0])))
                axes = choices, inputs, Axis("capsule", capsules)
            values = rounded(torch.stack(C), 5)
            sentence.coefficients.append(
                Map(name, call.place, call.kind, call.layer, *axes, values)
            )

    def on_states(self, states: base.StackStates) -> None:
        for b, sentence in self._in_batch(states.batch):
            real = states.batch.target[b]
            target = states.batch.sample["target"][b : b + 1]
            output = states.logits[b : b + 1], None  # features, with an adaptive softmax
            log_probs = self.log_probs(output, sample={"target": target})
            loss = -log_probs.gather(-1, target.unsqueeze(-1))[0, real]
            axes = Axis("loss", ["nats"]), Axis("subword", sentence.target, True)
            sentence.loss.append(Map("loss", "", "loss", 0, [], *axes, rounded(loss.t(), 3)))

    def rows(self) -> List[Sequence[base.Cell]]:
        found: List[Sequence[base.Cell]] = []
        for number, sentence in self.kept.items():
            for position, token in enumerate(sentence.source, 1):
                found.append((number, "source", position, token, None))
            ((losses,),) = (each.values for each in sentence.loss)
            for position, (token, loss) in enumerate(zip(sentence.target, losses), 1):
                found.append((number, "target", position, token, loss))
        return found

    def drawn(self) -> Tuple[int, List[Map]]:
        """Return number and maps of the first sentence that fits a figure, or of the shortest."""
        lengths = {number: len(sentence.source) for number, sentence in self.kept.items()}
        fitting = [number for number, length in lengths.items() if length <= READABLE]
        number = fitting[0] if fitting else min(lengths, key=lambda each: lengths[each])
        return number, [each for each in self.kept[number].attention if each.place == DRAWN]

    @classmethod
    def figures(cls, models: Mapping[str, Any]) -> List[Figure]:
        every = {name: analysis.drawn() for name, analysis in models.items()}
        drawn = {name: (number, maps[-1]) for name, (number, maps) in every.items() if maps}
        weights = {name: torch.tensor(each.values[1:]) for name, (_, each) in drawn.items()}
        highest = max((float(of_model.max()) for of_model in weights.values()), default=0.0)
        return [
            Figure(
                f"attention-sentence-{name}",
                f"Attention weights of {name}, {each.name}, for sentence {number} of the subset, "
                "from 0. The scale is the same for all heads and systems.",
                partial(
                    matrices,
                    {f"head {head}": A for head, A in enumerate(weights[name], 1)},
                    ("attention weight", "query", "key"),
                    words=(each.rows.labels, each.columns.labels),
                    highest=highest,
                ),
            )
            for name, (number, each) in drawn.items()
        ]


def with_few_columns(coefficients: Sequence[Tensor]) -> Tuple[List[Tensor], List[str]]:
    """Return C ``[I, N]`` of each iteration in at most ``MOST_COLUMNS`` columns, with their labels.

    A label is the number of an output capsule, or the first and last of those whose mean the column
    is, in sorted order.
    """
    order = by_strongest_input(coefficients[-1])
    group = -(-len(order) // MOST_COLUMNS)
    parts = [range(1, len(order) + 1)[at : at + group] for at in range(0, len(order), group)]
    labels = [str(part[0]) if group == 1 else f"{part[0]}-{part[-1]}" for part in parts]
    return [
        torch.stack([part.mean(-1) for part in C[:, order].split(group, dim=-1)], dim=-1)
        for C in coefficients
    ], labels


def numbers(count: int) -> List[str]:
    """Return the numbers from 1 as text."""
    return [str(number) for number in range(1, count + 1)]


def rounded(values: Tensor, digits: int) -> Any:
    """Return nested lists of rounded numbers."""
    return values.double().cpu().round(decimals=digits).tolist()
