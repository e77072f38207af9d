"""Every analysis, on both paddings, against loops over the tokens of each sentence alone."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Tuple, Type

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from capsnmt.analysis.agreement import Agreement, diversity, skewness
from capsnmt.analysis.anisotropy import Anisotropy
from capsnmt.analysis.attention import AttentionStatistics
from capsnmt.analysis.base import Analysis, NotApplicableError
from capsnmt.analysis.disagreement import Disagreement
from capsnmt.analysis.layer_weights import LayerWeights
from capsnmt.analysis.similarity import Similarity
from capsnmt.models import PRESETS
from capsnmt.modules.disagreement import TERMS, record_disagreement
from tests.analysis.systems import (
    analysed,
    corpus,
    couplings_of_each_sentence,
    logits_of_each_sentence,
    precise,
    states_of_each_sentence,
    system_of,
    weights_of_each_sentence,
)
from tests.support import EVERYWHERE

Flags = Tuple[str, ...]
Rows = Dict[Tuple[Any, ...], Tuple[float, ...]]  # what a row is -> its numbers
SIDES = ("encoder", "decoder")
ROLES = ("enc-self", "enc-dec", "dec-self")
NORM = ("--encoder-normalize-before", "--decoder-normalize-before")
TRANSFORMER = "capsnmt_transformer"
LAYERS = (TRANSFORMER, "--layer-aggregation")
DROPOUT = ("--dropout", "0.5", "--attention-dropout", "0.5", "--activation-dropout", "0.5")
HEADS = [
    *((preset, *DROPOUT) for preset in PRESETS),
    *((TRANSFORMER, "--head-aggregation", kind, *EVERYWHERE) for kind in ("gated", "talking")),
    *(("transformer_mlmha", "--mlmha", variant) for variant in ("M-01", "M-11")),
    (*LAYERS, "transparent"),
]


def attention(model: Any) -> Rows:
    """Ampomah et al. 2020, equations 13 to 16: token by token."""
    sums: Dict[Any, List[float]] = defaultdict(lambda: [0.0] * 6)
    for weights in weights_of_each_sentence(model):
        for (role, layer), of_layer in weights.items():
            for head, A in enumerate(of_layer.tolist(), 1):
                total = sums[role, layer, head]
                total[5] += len(A)
                for i, row in enumerate(A):
                    for j, w in enumerate(row):
                        total[0] += w * abs(i - j)
                        total[1] += w
                        total[2] += w * (i - j) * (j <= i)
                        total[3] += w * (j <= i)
                        total[4] -= w * math.log(w) if w else 0
    order = sorted(sums, key=lambda key: (ROLES.index(key[0]), *key[1:]))
    return {
        key: (far / weight, near / before, entropy / queries)
        for key in order
        for far, weight, near, before, entropy, queries in [sums[key]]
    }


# flags -> place and layer of each call of a routing operator, in the order of the forward pass
CALLS: Dict[Flags, List[Tuple[str, int]]] = {
    ("transformer_em_routing", *EVERYWHERE, "--head-capsules", "4"): [
        *(("enc-self", 1), ("enc-self", 2)),
        *(("dec-self", 1), ("enc-dec", 1), ("dec-self", 2), ("enc-dec", 2)),
    ],
    ("transformer_dlcl_routing", "--layer-capsules", "8"): [("encoder", 2), ("decoder", 2)],
    ("capsule_transformer",): [
        *((f"enc-self-{kind}", n) for n in (1, 2) for kind in ("vertical", "horizontal")),
        *(("dec-self-horizontal", n) for n in (1, 2)),
    ],
}


def routings(place: str, C: Tensor) -> List[Tensor]:
    """Return the coefficients ``[I, N]`` of each routing of a call for one sentence."""
    if place.endswith("vertical"):  # [1, heads, positions]
        return [C[0]]
    if place.endswith("horizontal"):  # [1, position, input position, heads]
        return [C[0, l, : l + 1] for l in range(C.size(1))]
    return list(C[:, 0])  # [positions, 1, inputs, outputs]


def by_strongest(mean: Tensor) -> List[int]:
    """Return the output capsules of C ``[I, N]`` by their strongest input, then its strength."""
    keys = {n: (int(of.argmax()), -float(of.max())) for n, of in enumerate(mean.unbind(1))}
    return sorted(keys, key=lambda n: keys[n])


def agreement(model: Any, flags: Flags) -> Rows:
    """Dou et al. 2019, equations 17 and 18, as :mod:`capsnmt.analysis.agreement` reads them."""
    found: Dict[Any, Tuple[List[float], List[float]]] = defaultdict(lambda: ([], []))
    for records in couplings_of_each_sentence(model):
        assert len(records) == len(CALLS[flags])
        for place, record in zip(CALLS[flags], records):
            for iteration, of_all in enumerate(record.coefficients, 1):
                entropies, diversities = found[(*place, iteration)]
                for C in routings(place[0], of_all):
                    logs = (c * math.log(c) for c in C.flatten().tolist() if c)
                    entropies.append(-sum(logs) / len(C))
                    unit = [column / column.norm().clamp(min=1e-8) for column in C.T]
                    cosines = [float(a @ b) for a, b in combinations(unit, 2)]
                    diversities += [1 - sum(cosines) / len(cosines)] if cosines else []
    return {
        key: (sum(e) / len(e), sum(d) / len(d) if d else math.nan)
        for key, (e, d) in sorted(found.items())
    }


def disagreement(model: Any) -> Rows:
    """What the criterion measures in training, layer by layer."""
    found: Dict[Any, List[Tensor]] = defaultdict(list)
    logits = iter(logits_of_each_sentence(model))
    for _ in corpus()[0]:
        with record_disagreement(TERMS, ROLES) as record:
            next(logits)
        for (role, term), layers in record.values.items():
            for layer, of_layer in enumerate(layers, 1):
                found[role, layer, term].append(of_layer[0])
    rows = sorted({key[:2] for key in found}, key=lambda key: (ROLES.index(key[0]), key[1]))
    return {
        row: tuple(float(torch.cat(found[(*row, term)]).mean()) for term in TERMS) for row in rows
    }


def tokens_of(model: Any, stack: str) -> List[Tensor]:
    """Return H^0..H^L ``[tokens, d]`` of all sentences."""
    return [torch.cat(layer) for layer in zip(*states_of_each_sentence(model, stack))]


def similarity(model: Any) -> Rows:
    """Kornblith et al. 2019, equation 3, by the kernels of all pairs of tokens."""
    found: Rows = {}
    for stack in SIDES:
        layers = tokens_of(model, stack)
        n = len(layers[0])
        centre = torch.eye(n, dtype=layers[0].dtype) - 1 / n
        kernels = [x @ x.t() @ centre for x in layers]

        def hsic(a: int, b: int, kernels: List[Tensor] = kernels) -> float:
            return float(torch.trace(kernels[a] @ kernels[b]))

        for a in range(len(layers)):
            for b in range(len(layers)):
                found[stack, a, b] = (hsic(a, b) / math.sqrt(hsic(a, a) * hsic(b, b)),)
    return found


def anisotropy(model: Any) -> Rows:
    """The mean cosine of all pairs of tokens."""
    found: Rows = {}
    for stack in ("encoder", "encoder-output", "decoder"):
        for number, tokens in enumerate(tokens_of(model, stack), stack == "encoder-output"):
            cosines = [cosine_similarity(x, y, dim=0) for x, y in combinations(tokens, 2)]
            found[stack, number] = (float(sum(cosines) / len(cosines)),)
    return found


def shares(tokens: List[List[Tensor]], *key: Any, first: int) -> Iterator[Any]:
    """Yield the mean norm of each summand, and its share, for the summands of every token."""
    norms = [sum(part.norm().item() for part in parts) / len(parts) for parts in zip(*tokens)]
    for layer, value in enumerate(norms, first):
        yield (*key, layer), (value, value / sum(norms))


def summands(module: Any, mode: str, H: List[Tensor]) -> List[Tensor]:
    """Return the summands of one token's aggregate of H^1..H^L."""
    d = len(H[0])
    if mode == "linear":
        return [module.combine.weight[:, l * d : (l + 1) * d] @ h for l, h in enumerate(H)]
    if mode == "dynamic":
        g = module.fc2(torch.relu(module.fc1(torch.cat(H))))
        return [g[l * d : (l + 1) * d] * h for l, h in enumerate(H)]
    scores = [module.query @ (module.gain * h / (h @ h / d + 1e-6).sqrt()) for h in H]
    return [a * h for a, h in zip(torch.stack(scores).softmax(0), H)]


@torch.no_grad()
def outputs_of_each_sentence(model: Any, side: str) -> List[List[Tensor]]:
    """Return y_0..y_L ``[tokens, d]`` of each sentence, the embedding and the layers' outputs."""
    layers = list(getattr(model, side).layers.children())
    found: List[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        found.append((output if isinstance(output, Tensor) else output[0])[:, 0])

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    embeddings = [states[0] for states in states_of_each_sentence(model, side)]
    for hook in hooks:
        hook.remove()
    return [[y_0, *found[len(layers) * n :][: len(layers)]] for n, y_0 in enumerate(embeddings)]


def connected(model: Any, side: str, mode: str, norm: bool) -> Iterator[Any]:
    """Yield the shares of y_0..y_l in what each layer reads, and in the output of the stack."""
    connection = getattr(model, side).connection
    weights = [torch.ones(1), *connection.weights] if mode == "dense" else connection.weights
    norms = connection.norms if mode == "dlcl" and norm else [nn.Identity()] * 3
    sentences = outputs_of_each_sentence(model, side)
    for w in weights:
        tokens = [
            [w[k] * norms[k](y) for k, y in enumerate(token[: len(w)])]
            for outputs in sentences
            for token in zip(*outputs)
        ]
        reader = len(w) if len(w) < len(sentences[0]) else None
        yield from shares(tokens, side, reader, first=0)


@torch.no_grad()
def layer_weights(model: Any, flags: Flags) -> Rows:
    """The mean norm of what each layer adds to an aggregate, and its share."""
    mode, norm = flags[2], NORM[0] in flags
    found: List[Any] = []
    if mode == "transparent":
        weights = model.encoder.transparent.weight.softmax(0)
        tokens = list(zip(*tokens_of(model, "encoder")))
        for j in range(weights.size(1)):
            parts = [[w * h for w, h in zip(weights[:, j], token)] for token in tokens]
            found += shares(parts, "encoder", j + 1, first=0)
        return dict(found)
    for side in SIDES:
        stack = getattr(model, side)
        if mode in ("dlcl", "dense"):
            found += connected(model, side, mode, norm)
            continue
        layers = [stack.layer_norm(H) if norm else H for H in tokens_of(model, side)[1:]]
        tokens = [summands(stack.layer_aggregation, mode, list(H)) for H in zip(*layers)]
        found += shares(tokens, side, None, first=1)
    return dict(found)


STACKS: List[Flags] = [
    (TRANSFORMER,),
    (TRANSFORMER, "--encoder-layers", "3"),  # different depths
    (TRANSFORMER, NORM[0]),
    (TRANSFORMER, NORM[1]),
    ("transformer_em_routing",),
    ("transformer_dlcl_routing",),
    ("transformer_mlmha",),
    ("capsule_transformer",),
    (*LAYERS, "transparent"),
]
ANALYSES: List[Tuple[Type[Analysis], Callable[..., Rows], List[Flags]]] = [
    (AttentionStatistics, attention, HEADS),
    (Agreement, agreement, list(CALLS)),
    (Disagreement, disagreement, HEADS),
    (Similarity, similarity, STACKS[:7]),
    (Anisotropy, anisotropy, STACKS),
    (
        LayerWeights,
        layer_weights,
        [
            *((*LAYERS, mode, *norm) for norm in ((), NORM) for mode in ("linear", "dynamic")),
            *((*LAYERS, "attention"), (*LAYERS, "attention", *NORM)),
            *((*LAYERS, "dlcl"), (*LAYERS, "dlcl", *NORM), (*LAYERS, "dense", *NORM)),
            (*LAYERS, "transparent", "--decoder-layers", "3"),
        ],
    ),
]
CASES = [
    pytest.param(kind, oracle, flags, id=f"{kind.name}-{' '.join(flags)}")
    for kind, oracle, models in ANALYSES
    for flags in models
]


@pytest.mark.parametrize("left_pad", [True, False], ids=["left", "right"])
@pytest.mark.parametrize(("kind", "oracle", "flags"), CASES)
def test_an_analysis_of_padded_batches_is_its_definition(
    kind: Type[Analysis], oracle: Callable[..., Rows], flags: Flags, left_pad: bool
) -> None:
    model = precise(*flags)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    rows = analysed(kind, system_of(model, left_pad)).rows()
    expected = oracle(model, flags) if oracle in (agreement, layer_weights) else oracle(model)
    width = len(next(iter(expected)))
    assert [tuple(row[:width]) for row in rows] == list(expected)
    for row, numbers in zip(rows, expected.values()):
        found = tuple(row[width:])
        assert found == pytest.approx(numbers, rel=1e-5, abs=1e-7, nan_ok=True), row
    assert not any(module._forward_hooks for module in model.modules())
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)


NONE: List[Tuple[Type[Analysis], str, Flags]] = [
    (Agreement, "it routes nothing", (TRANSFORMER,)),
    (LayerWeights, "does not add up layers", (TRANSFORMER,)),
    (LayerWeights, "does not add up layers", ("transformer_mlmha",)),
    (LayerWeights, "does not add up layers", ("transformer_dlcl_routing",)),
    (LayerWeights, "does not add up layers", (*LAYERS, "iterative")),
]


@pytest.mark.parametrize(("kind", "reason", "flags"), NONE)
def test_a_model_without_what_is_analysed_says_so(
    kind: Type[Analysis], reason: str, flags: Flags
) -> None:
    with pytest.raises(NotApplicableError, match=reason):
        kind(system_of(precise(*flags)))


def test_the_map_of_agreement_is_the_mean_over_all_real_tokens() -> None:
    flags = list(CALLS)[1]
    model = precise(*flags)
    each = [
        C
        for records in couplings_of_each_sentence(model)
        for C in routings("encoder", records[0].coefficients[-1])
    ]
    mean = torch.stack(each).mean(0)
    maps = analysed(Agreement, system_of(model)).maps()["encoder", 2]
    torch.testing.assert_close(maps[-1].double(), mean[:, by_strongest(mean)])


@pytest.mark.parametrize("capsules", [1, 2, 512])
def test_limits_of_a_uniform_and_a_one_hot_choice(capsules: int) -> None:
    """dou2019 prints an entropy of 6.24 for a uniform choice of 512, which is log 512."""
    inputs, outputs = torch.ones(6, dtype=torch.bool), torch.ones(capsules, dtype=torch.bool)
    uniform = torch.full((6, capsules), 1 / capsules)
    assert skewness(uniform, inputs).item() == pytest.approx(math.log(capsules), abs=1e-5)
    alike = diversity(uniform, inputs, outputs).item()
    assert math.isnan(alike) if capsules == 1 else alike == pytest.approx(0, abs=1e-5)
    if capsules == 2:
        one_hot = torch.eye(2).repeat(3, 1)
        assert skewness(one_hot, inputs).item() == 0
        assert diversity(one_hot, inputs, outputs).item() == pytest.approx(1)


def test_the_start_of_linear_combination_is_the_top_layer_alone() -> None:
    model = precise(*LAYERS, "linear")
    for side in SIDES:
        getattr(model, side).layer_aggregation.reset_parameters()
    rows = analysed(LayerWeights, system_of(model)).rows()
    assert [row[-1] for row in rows] == [0, 1, 0, 1]


def after(kind: Type[Analysis], *states: List[Tensor]) -> Any:
    """Return an analysis that has read a stack's states of some batches of one sentence."""
    analysis: Any = kind(SimpleNamespace())
    for layers in states:
        real = torch.ones(1, len(layers[0]), dtype=torch.bool)
        batch = SimpleNamespace(source=real, target=real)
        stack = [layer[None] for layer in layers]
        read = SimpleNamespace(batch=batch, encoder=stack, decoder=stack, encoder_output=stack[0])
        analysis.passed(read)
    analysis.finish()
    return analysis.rows()


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (torch.tensor([[1.0, 2], [2, 4], [3, 6]]), 1),  # the same direction
        (torch.eye(3), 0),
        (torch.tensor([[1.0, 0], [-1, 0]]), -1),
        (torch.tensor([[0.0, 0], [0, 0]]), 0),  # a state of zeros has no direction
        (torch.tensor([[1.0, 2]]), math.nan),  # one token has no pair
    ],
)
def test_known_states_have_known_cosines(tokens: Tensor, expected: float) -> None:
    for batches in ([[tokens]], [[token[None]] for token in tokens]):
        value = after(Anisotropy, *batches)[0][-1]
        assert value == pytest.approx(expected, nan_ok=True, abs=1e-12)


def test_known_states_have_known_similarities() -> None:
    """A rotation, a scale and a shift change nothing; a constant layer has no similarity."""
    torch.manual_seed(0)
    x = torch.randn(5000, 4)
    rotation = torch.linalg.qr(torch.randn(4, 4))[0]
    layers = [x, 3 * x @ rotation + 7, x * torch.eye(4)[0], torch.randn(5000, 4), 0 * x + 0.1]
    found = after(Similarity, [y[:10] for y in layers], [y[10:] for y in layers])[: len(layers)]
    same, rotated, projected, other, constant = (row[-1] for row in found)
    assert (same, rotated) == pytest.approx((1, 1), abs=1e-5)
    assert projected < 0.9
    assert other < 0.01
    assert math.isnan(constant)
