"""Every analysis, on both paddings, against loops over the tokens of each sentence alone."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Type

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from capsnmt.analysis import head_tsne
from capsnmt.analysis.agreement import diversity, skewness
from capsnmt.analysis.anisotropy import Anisotropy
from capsnmt.analysis.base import Analysis
from capsnmt.analysis.similarity import Similarity
from capsnmt.models import PRESETS
from capsnmt.modules.disagreement import TERMS, record_disagreement
from tests.analysis.small_models import (
    LENGTHS,
    Flags,
    analysed,
    corpus,
    couplings_of_each_sentence,
    logits_of_each_sentence,
    losses_of_each_sentence,
    precise,
    rows_of,
    states_of_each_sentence,
    weights_of_each_sentence,
)
from tests.support import EVERYWHERE, TASK

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


def attention(model: Any, flags: Flags) -> Rows:
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


# flags -> place, kind and layer of each call of a routing operator, in the order of the pass
CALLS: Dict[Flags, List[Tuple[str, str, int]]] = {
    ("transformer_em_routing", *EVERYWHERE, "--head-capsules", "4"): [
        *(("enc-self", "heads", n) for n in (1, 2)),
        *((place, "heads", n) for n in (1, 2) for place in ("dec-self", "enc-dec")),
    ],
    ("transformer_dlcl_routing", "--layer-capsules", "8"): [
        *(("encoder", "layers", 2), ("decoder", "layers", 2)),
    ],
    (
        *("transformer_em_routing", "--head-aggregation", "inverted", "--head-capsules", "4"),
        *("--layer-aggregation", "inverted-routing", "--layer-capsules", "8"),
    ): [
        *(("enc-self", "heads", n) for n in (1, 2)),
        *(("encoder", "layers", 2), ("decoder", "layers", 2)),
    ],
    ("capsule_transformer",): [
        *(("enc-self", kind, n) for n in (1, 2) for kind in ("vertical", "horizontal")),
        *(("dec-self", "horizontal", n) for n in (1, 2)),
    ],
}


def routings(kind: str, C: Tensor) -> List[Tensor]:
    """Return the coefficients ``[I, N]`` of each routing of a call for one sentence."""
    if kind == "vertical":  # [1, heads, positions]
        return [C[0]]
    if kind == "horizontal":  # [1, position, input position, heads]
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
                for C in routings(place[1], of_all):
                    logs = (c * math.log(c) for c in C.flatten().tolist() if c)
                    entropies.append(-sum(logs) / len(C))
                    unit = [column / column.norm().clamp(min=1e-8) for column in C.T]
                    cosines = [float(a @ b) for a, b in combinations(unit, 2)]
                    diversities += [1 - sum(cosines) / len(cosines)] if cosines else []
    return {
        key: (sum(e) / len(e), sum(d) / len(d) if d else math.nan)
        for key, (e, d) in sorted(found.items())
    }


def disagreement(model: Any, flags: Flags) -> Rows:
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


def similarity(model: Any, flags: Flags) -> Rows:
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


def anisotropy(model: Any, flags: Flags) -> Rows:
    """The mean cosine of all pairs of tokens."""
    found: Rows = {}
    for stack in ("encoder", "encoder-output", "decoder"):
        for number, tokens in enumerate(tokens_of(model, stack), stack == "encoder-output"):
            cosines = [cosine_similarity(x, y, dim=0) for x, y in combinations(tokens, 2)]
            found[stack, number] = (float(sum(cosines) / len(cosines)),)
    return found


def shares(
    tokens: List[List[Tensor]], *key: Any, first: int, weights: Sequence[Optional[float]] = ()
) -> Iterator[Any]:
    """Yield the mean norm of each summand, and its share, for the summands of every token."""
    norms = [sum(part.norm().item() for part in parts) / len(parts) for parts in zip(*tokens)]
    of_layers = zip(norms, weights or [None] * len(norms))
    for layer, (value, weight) in enumerate(of_layers, first):
        yield (*key, layer), (value, value / sum(norms), weight)


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
def attended(model: Any, side: str, block: int) -> Iterator[Any]:
    """Yield the shares and weights of what each sublayer, and the output of the stack, reads."""
    stack = getattr(model, side)
    computed: List[Tensor] = []  # v_1..v_n of a sentence, those of all sentences in turn
    hooks = [
        layer.dropout_module.register_forward_hook(lambda _, __, v: computed.append(v[:, 0]))
        for layer in stack.layers
    ]
    embeddings = [states[0] for states in states_of_each_sentence(model, side)]
    for hook in hooks:
        hook.remove()
    n = len(computed) // len(embeddings)
    tokens = [
        list(values)
        for s, v_0 in enumerate(embeddings)
        for values in zip(v_0, *computed[n * s : n * (s + 1)])
    ]
    yield from shares([[v[0]] for v in tokens], side, 1, first=0, weights=[1.0])
    for l, (w, g) in enumerate(zip(stack.connection.queries, stack.connection.gains), 1):
        parts, weights = [], []
        for v_0, *v in tokens:
            sources = [v_0, *(sum(v[at : min(at + block, l)]) for at in range(0, l, block))]
            scores = [w @ (g * x / (x @ x / len(x) + 1e-6).sqrt()) for x in sources]
            p = torch.stack(scores).softmax(0)
            parts.append([a * x for a, x in zip(p, sources)])
            weights.append(p)
        mean = torch.stack(weights).mean(0).tolist()
        yield from shares(parts, side, l + 1 if l < n else None, first=0, weights=mean)


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
        if mode == "attention-residuals":
            found += attended(model, side, int(flags[-1]))
            continue
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


def sentences(model: Any, flags: Flags) -> Rows:
    """Every subword, and the loss of those of the references."""
    found: Rows = {}
    losses = losses_of_each_sentence(model)
    for number, (source, target) in enumerate(zip(*corpus())):
        for side, ids in (("source", source), ("target", target)):
            for at, i in enumerate(ids.tolist()):
                loss = losses[number][at] if side == "target" else None
                found[number, side, at + 1, TASK.source_dictionary[i]] = (loss,)
    return found


ORACLES: List[Tuple[Callable[[Any, Flags], Rows], List[Flags]]] = [
    (attention, HEADS),
    (agreement, list(CALLS)),
    (disagreement, HEADS),
    (similarity, STACKS[:7]),
    (anisotropy, STACKS),
    (
        layer_weights,
        [
            *((*LAYERS, mode, *norm) for norm in ((), NORM) for mode in ("linear", "dynamic")),
            *((*LAYERS, "attention"), (*LAYERS, "attention", *NORM)),
            *((*LAYERS, "dlcl"), (*LAYERS, "dlcl", *NORM), (*LAYERS, "dense", *NORM)),
            (*LAYERS, "transparent", "--decoder-layers", "3"),
            *(
                (*LAYERS, "attention-residuals", *NORM, "--attention-residuals-block", block)
                for block in ("1", "2")
            ),
        ],
    ),
    (sentences, [(TRANSFORMER,), ("capsule_transformer",)]),
]
MODELS = list(dict.fromkeys(flags for _, models in ORACLES for flags in models))


@pytest.mark.parametrize("left_pad", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("flags", MODELS, ids=" ".join)
def test_every_analysis_of_padded_batches_is_its_definition(
    flags: Flags, left_pad: bool, tmp_path: Path
) -> None:
    model = precise(*flags)
    oracles = {oracle.__name__: oracle for oracle, models in ORACLES if flags in models}
    findings = analysed(model, tmp_path, flags, list(oracles), left_pad)
    for name, oracle in oracles.items():
        expected = oracle(model, flags)
        width = len(next(iter(expected)))
        rows = rows_of(findings, name)
        assert [tuple(row[:width]) for row in rows] == list(expected)
        for row, numbers in zip(rows, expected.values()):
            # losses of subwords are rounded
            digits = 6e-4 if oracle is sentences else 2e-5
            close = [
                number
                if number is None
                else pytest.approx(number, rel=2e-4, abs=digits, nan_ok=True)
                for number in numbers
            ]
            assert list(row[width:]) == close, (name, row)


NONE: List[Tuple[str, str, Flags]] = [
    ("agreement", "it routes nothing", (TRANSFORMER,)),
    ("layer_weights", "does not add up layers", ("transformer_mlmha",)),
    ("layer_weights", "does not add up layers", ("transformer_dlcl_routing",)),
    ("layer_weights", "does not add up layers", (*LAYERS, "iterative")),
    ("head_tsne", "has one head", (TRANSFORMER, "--encoder-attention-heads", "1")),
    ("layer_bleu", "--ablation-translations is 0", ("transformer_mlmha",)),
    *(
        ("layer_ablation", "reads the top encoder layer only", flags)
        for flags in (
            ("transformer_em_routing",),
            ("transformer_mlmha", "--mlmha-sources", "1"),
            ("transformer_dlcl_routing", "--layer-aggregation-side", "decoder"),
        )
    ),
]


@pytest.mark.parametrize(("name", "reason", "flags"), NONE)
def test_a_model_without_what_is_analysed_says_so(
    name: str, reason: str, flags: Flags, tmp_path: Path
) -> None:
    findings = analysed(precise(*flags), tmp_path, flags, [name])
    assert not findings.of
    assert reason in findings.missing[name]["it"]


def test_the_map_of_agreement_is_the_mean_over_all_real_tokens(tmp_path: Path) -> None:
    flags = list(CALLS)[1]
    model = precise(*flags)
    each = [
        C
        for records in couplings_of_each_sentence(model)
        for C in routings("layers", records[0].coefficients[-1])
    ]
    mean = torch.stack(each).mean(0)
    found: Any = analysed(model, tmp_path, flags, ["agreement"]).of["agreement"]["it"]
    last = found.maps()["encoder", 2][-1]
    torch.testing.assert_close(last, mean[:, by_strongest(mean)], rtol=1e-4, atol=1e-6)


def heads_of_each_token(model: Any) -> Dict[Tuple[int, int, int], np.ndarray]:
    """Return O of the top encoder layer, by sentence, position and head."""
    found: List[Tensor] = []
    attention = model.encoder.layers[-1].self_attn
    hook = attention.out_proj.register_forward_hook(lambda _, inputs, __: found.append(inputs[0]))
    for _ in logits_of_each_sentence(model):
        pass
    hook.remove()
    return {
        (sentence, position, head): O.numpy()
        for sentence, joined in enumerate(found)
        for position, token in enumerate(joined[:, 0], 1)
        for head, O in enumerate(token.unflatten(-1, (attention.num_heads, -1)), 1)
    }


def silhouette(points: np.ndarray, groups: np.ndarray) -> List[float]:
    """Rousseeuw 1987: (b - a) / max(a, b) of the mean distances to the own and nearest group."""
    values = []
    for i, own in enumerate(groups):
        distances = np.linalg.norm(points - points[i], axis=1)
        others = np.arange(len(points)) != i
        to = {g: distances[(groups == g) & others].mean() for g in np.unique(groups)}
        a, b = to.pop(own), min(to.values())
        values.append((b - a) / max(a, b))
    return values


@pytest.mark.parametrize(
    ("flags", "tokens", "left_pad"),
    [
        ((TRANSFORMER,), 200, True),
        (("transformer_em_routing", "--head-aggregation-encoder-layers", "2"), 200, False),
        (("capsule_transformer",), 10, True),
    ],
)
def test_t_sne_shows_the_head_outputs_of_a_sample_of_real_tokens(
    flags: Flags, tokens: int, left_pad: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_tsne, "TOKENS", tokens)
    model = precise(*flags)
    rows = rows_of(analysed(model, tmp_path, flags, ["head_tsne"], left_pad), "head_tsne")
    keys = [(row[3], row[4], row[2]) for row in rows]
    heads = heads_of_each_token(model)
    assert len(set(keys)) == len(keys) == 4 * min(tokens, sum(LENGTHS) + len(LENGTHS))
    assert {row[:2] for row in rows} == {("enc-self", 2)}
    points = np.array([heads[key] for key in keys])
    expected = silhouette(points, np.array([head for *_, head in keys]))
    assert [row[-1] for row in rows] == pytest.approx(expected, abs=1e-4)
    assert np.isfinite([row[5:7] for row in rows]).all()


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


def after(kind: Type[Analysis], *states: List[Tensor]) -> Any:
    """Return an analysis that has read a stack's states of some batches of one sentence."""
    analysis: Any = kind(SimpleNamespace(chosen=[0]))  # type: ignore[arg-type]
    for layers in states:
        real = torch.ones(1, len(layers[0]), dtype=torch.bool)
        batch = SimpleNamespace(source=real, target=real)
        stack = [layer[None] for layer in layers]
        read = SimpleNamespace(batch=batch, encoder=stack, decoder=stack, encoder_output=stack[0])
        analysis.on_states(read)
    analysis.finish(None)
    return analysis.rows()


def test_known_states_have_known_cosines() -> None:
    for tokens, expected in (
        ([[1.0, 2], [2, 4], [3, 6]], 1),  # the same direction
        ([[1.0, 0], [-1, 0]], -1),
        ([[0.0, 0], [0, 0]], 0),  # a state of zeros has no direction
        ([[1.0, 2]], math.nan),  # one token has no pair
    ):
        value = after(Anisotropy, *([torch.tensor([token])] for token in tokens))[0][-1]
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
