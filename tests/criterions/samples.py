"""What the tests of criterions share: a batch, a small model, and losses as explicit sums."""

import functools
from typing import Any, Dict, List, Sequence, Tuple

import torch
from fairseq.distributed import ModuleProxyWrapper
from fairseq.logging import metrics
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torch.nn.parallel import DistributedDataParallel

from capsnmt.criterions import label_smoothed_cross_entropy_with_disagreement as disagreement
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.disagreement import TERMS
from tests.support import PAD, TASK, batch, build, encoder_input, sentences, shifted

ALL = {"disagreement": ",".join(TERMS), "disagreement_attention": ",".join(ATTENTIONS)}
SOURCES, TARGETS = sentences(3, 6, 1), sentences(5, 2, 4, seed=1)


def criterion(sentence_avg: bool = False, **settings: Any) -> Any:
    config = disagreement.LabelSmoothedCrossEntropyWithDisagreementCriterionConfig
    cfg = config(sentence_avg=sentence_avg, label_smoothing=0.1, **settings)
    return disagreement.LabelSmoothedCrossEntropyWithDisagreementCriterion(TASK, cfg)


def make_sample(
    sources: Sequence[Tensor], targets: Sequence[Tensor], left_pad: bool = True
) -> Dict[str, Any]:
    """A batch as the translation task collates it."""
    target = batch(targets, left_pad=False)
    return {
        "ntokens": int(target.ne(PAD).sum()),
        "target": target,
        "net_input": {**encoder_input(sources, left_pad), "prev_output_tokens": shifted(target)},
    }


SAMPLE = make_sample(SOURCES, TARGETS)


def train(*flags: str, arch: str = "capsnmt_transformer") -> nn.Module:
    return build(arch, "--attention-dropout", "0", *flags).train()


def data_parallel(model: nn.Module, find_unused: bool) -> nn.Module:
    """The model as fairseq wraps it for several processes."""
    return ModuleProxyWrapper(DistributedDataParallel(model, find_unused_parameters=find_unused))


def gradients(model: nn.Module, loss: Tensor) -> Dict[str, Tensor]:
    model.zero_grad()
    loss.backward(retain_graph=True)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def logged(criterion: Any, updates: Sequence[List[Dict[str, Any]]]) -> Dict[str, float]:
    """What the log shows after these updates, each a list of what workers and batches report."""
    with metrics.aggregate(new_root=True) as aggregator:
        for update in updates:
            criterion.reduce_metrics(update)
    return {name: float(value) for name, value in aggregator.get_smoothed_values().items()}


def disagreement_of_vectors(heads: Sequence[Tensor], power: int = 1) -> Tensor:
    """Li et al. 2021, eq. 5 (values) and 7 (outputs), negated: the H vectors of one token."""
    cosines = [cosine_similarity(x, y, dim=0) for x in heads for y in heads]
    return torch.stack([cosine**power for cosine in cosines]).sum() / len(heads) ** 2


def dependence_of_heads(heads: Sequence[Tensor]) -> Tensor:
    """The normalised HSIC of all pairs of heads ``[n, d_h]`` of one sentence, by its definition."""
    n = len(heads[0])
    centring = torch.eye(n, dtype=heads[0].dtype) - 1 / n
    kernels = [h @ h.t() for h in heads]

    def hsic(K: Tensor, L: Tensor) -> Tensor:
        return torch.trace(K @ centring @ L @ centring) / (n - 1) ** 2

    pairs = [
        hsic(K, L) / (hsic(K, K) * hsic(L, L)).sqrt() if n > 1 else K.sum() * 0
        for K in kernels
        for L in kernels
    ]
    return torch.stack(pairs).sum() / len(heads) ** 2


def disagreement_of_overlaps(heads: Sequence[Tensor]) -> Tensor:
    """Li et al. 2021, eq. 6, negated: the H rows of weights of one query."""
    return torch.stack([x @ y for x in heads for y in heads]).sum() / len(heads) ** 2


OF_TOKENS = {
    "subspace": disagreement_of_vectors,
    "position": disagreement_of_overlaps,
    "output": disagreement_of_vectors,
    "orthogonality": functools.partial(disagreement_of_vectors, power=2),
}


def term_of_pairs(layers: List[List[Tensor]], real: Tensor, term: str) -> Tensor:
    """The mean over layers ``[B, H, L, .]`` of the mean over real tokens ``[B, L]``."""
    means = []
    for layer in layers:
        tokens = []
        for heads, kept in zip(layer, real):
            of_tokens = heads[:, kept].transpose(0, 1)  # [n, H, .]
            if term == "hsic":
                tokens += [dependence_of_heads(of_tokens.transpose(0, 1))] * len(of_tokens)
            else:
                tokens += [OF_TOKENS[term](token) for token in of_tokens]
        means.append(torch.stack(tokens).mean())
    return torch.stack(means).mean()


def label_smoothed_loss(
    features: Tensor, weight: Tensor, target: Tensor, epsilon: float, padding: int
) -> Tuple[Tensor, Tensor]:
    """fairseq's loss and -log p(y), summed over the tokens, one after the other."""
    eps_i = epsilon / (len(weight) - 1)
    loss = likelihood = features.sum() * 0
    for h, y in zip(features, target):
        if y != padding:
            z = weight @ h
            lse = z.exp().sum().log()
            loss = loss + (1 - epsilon - eps_i) * (lse - z[y]) + eps_i * (lse - z).sum()
            likelihood = likelihood + lse - z[y]
    return loss, likelihood
