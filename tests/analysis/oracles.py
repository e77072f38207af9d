"""The analyses by their definitions: loops over the tokens of each sentence alone."""

import math
from collections import defaultdict
from functools import partial
from itertools import combinations
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from capsnmt.modules.disagreement import TERMS, record_disagreement
from tests.analysis.small_models import (
    LENGTHS,
    Flags,
    corpus,
    logits_of_each_sentence,
    losses_of_each_sentence,
    of_each_sentence,
    states_of_each_sentence,
    weights_of_each_sentence,
)
from tests.support import EVERYWHERE, TASK

Rows = Dict[Tuple[Any, ...], Tuple[float, ...]]  # what a row is -> its numbers
SIDES = ("encoder", "decoder")
ROLES = ("enc-self", "enc-dec", "dec-self")


def attention(model: Any, flags: Flags) -> Rows:
    """Ampomah et al. 2020, equations 13 to 16: sentence by sentence."""
    sums: Dict[Any, Any] = defaultdict(lambda: 0)
    for weights in weights_of_each_sentence(model):
        for (role, layer), of_layer in weights.items():
            i, j = (torch.arange(size) for size in of_layer.shape[1:])
            distance = i[:, None] - j
            for head, A in enumerate(of_layer, 1):
                far, near = (A * distance.abs(), A), (A.tril() * distance, A.tril())
                entropy = torch.special.entr(A), A.new_ones(len(A))
                sums[role, layer, head] += torch.stack([x.sum() for x in (*far, *near, *entropy)])
    order = sorted(sums, key=lambda key: (ROLES.index(key[0]), *key[1:]))
    return {key: tuple((sums[key][::2] / sums[key][1::2]).tolist()) for key in order}


# flags -> place, kind and layer of each call of a routing operator, in the order of the pass
CALLS: Dict[Flags, List[Tuple[str, str, int]]] = {
    ("transformer_em_routing", *EVERYWHERE, "--head-capsules", "4"): [
        *(("enc-self", "heads", n) for n in (1, 2)),
        *((place, "heads", n) for n in (1, 2) for place in ("dec-self", "enc-dec")),
    ],
    ("transformer_dlcl_routing", "--layer-capsules", "8"): [
        *(("encoder", "layers", 2), ("decoder", "layers", 2))
    ],
    (
        *("transformer_em_routing", "--head-capsules", "4"),
        *("--routing-iterations", "1", "--routing-coefficients", "random"),
    ): [("enc-self", "heads", n) for n in (1, 2)],
    (
        *("transformer_em_routing", "--head-aggregation", "inverted", "--head-capsules", "4"),
        *("--layer-aggregation", "inverted-routing", "--layer-capsules", "1"),
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
    drawn = [C for name, C in model.named_buffers() if name.endswith("coefficients")]
    for records in of_each_sentence(model):
        assert len(records) == len(CALLS[flags])
        for number, (place, record) in enumerate(zip(CALLS[flags], records)):
            for iteration, of_all in enumerate(record.coefficients, 1):
                of_all = drawn[number].expand_as(of_all) if drawn else of_all
                entropies, diversities = found[(*place, iteration)]
                for C in routings(place[1], of_all):
                    entropies.append(float(torch.special.entr(C).sum()) / len(C))
                    cosines = [float(cosine_similarity(a, b, 0)) for a, b in combinations(C.T, 2)]
                    diversities += [1 - sum(cosines) / len(cosines)] if cosines else []
    return {
        key: (sum(e) / len(e), sum(d) / len(d) if d else math.nan)
        for key, (e, d) in sorted(found.items())
    }


def disagreement(model: Any, flags: Flags) -> Rows:
    """What the criterion measures in training, layer by layer."""
    found: Dict[Any, List[Tensor]] = defaultdict(list)
    for record in of_each_sentence(model, partial(record_disagreement, TERMS, ROLES)):
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


def summands(mode: str, module: Any, states: List[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
    """Return what an aggregate adds up, ``[tokens, .., sources, d]``, and weights that it shows."""
    read = len(states)
    states = module.sources(states) if mode == "attention-residuals" else states
    H, width = torch.stack(states, 1), states[0].size(-1)
    if mode == "linear":
        W = module.combine.weight.split(width, 1)
        return torch.stack([x @ w.t() for x, w in zip(states, W)], 1), None
    if mode == "dynamic":
        return module.fc2(torch.relu(module.fc1(H.flatten(1)))).view_as(H) * H, None
    if mode == "transparent":
        return torch.stack([H * w[:, None] for w in module.weight.softmax(0).t()], 1), None
    if mode in ("dlcl", "dense"):
        rows = {len(row): row for row in module.weights}  # of one state, dense reads it itself
        return H * rows.get(read, H.new_ones(read))[:, None], None
    own = mode == "attention"
    query = module.query * module.gain if own else module.queries[read - 2] * module.gains[read - 2]
    p = (H @ query / (H.square().mean(-1) + 1e-6).sqrt()).softmax(1)
    return H * p[..., None], None if own else p


@torch.no_grad()
def layer_weights(model: Any, flags: Flags) -> Rows:
    """The mean norm of every summand of an aggregate, its share and, if it has one, its weight."""
    calls: Dict[Any, List[Any]] = defaultdict(list)  # side and module -> its calls

    def hooked(side: str, module: nn.Module) -> Any:
        def keep(_: nn.Module, inputs: Any, output: Any) -> None:
            calls[side, module].append(([state[:, 0] for state in inputs[0]], output[:, 0]))

        return module.register_forward_hook(keep)

    stacks = [(side, getattr(model, side)) for side in SIDES]
    modules = [(s, x) for s, stack in stacks for x in (stack.connection, stack.layer_aggregation)]
    modules.append(("encoder", model.encoder.transparent))
    hooks = [hooked(side, module) for side, module in modules if module is not None]
    for _ in logits_of_each_sentence(model):
        pass
    for hook in hooks:
        hook.remove()
    found: Rows = {}
    for (side, module), of_module in calls.items():
        a_sentence = len(of_module) // len(LENGTHS)  # calls: readers of a connection
        for reader in range(1, a_sentence + 1):
            read, outputs = zip(*of_module[reader - 1 :: a_sentence])
            parts, weights = summands(flags[2], module, [torch.cat(each) for each in zip(*read)])
            if flags[2] != "dlcl":  # which may normalise the sum
                torch.testing.assert_close(parts.sum(-2).flatten(1), torch.cat(outputs))
            weights = [None] * parts.size(-2) if weights is None else weights.mean(0).tolist()
            mixtures = (
                enumerate(parts.unbind(1), 1)
                if flags[2] == "transparent"
                else [(reader if reader < a_sentence else None, parts)]
            )
            for read_by, of_mixture in mixtures:
                norms = [sum(x.norm().item() for x in of) / len(of) for of in of_mixture.unbind(1)]
                first = int(flags[2] in ("linear", "dynamic", "attention"))
                for layer, (norm, weight) in enumerate(zip(norms, weights), first):
                    found[side, read_by, layer] = (norm, norm / sum(norms), weight)
    return found


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
