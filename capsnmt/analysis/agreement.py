"""Agreement of routing: entropy and diversity of C, and heat maps (Dou et al. 2019, section 4)."""

from functools import partial
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import torch
from torch import Tensor

from capsnmt.analysis.base import Analysis, Cell, NotApplicableError, RoutingCall, places
from capsnmt.analysis.plots import Figure, in_words, matrices
from capsnmt.modules.algorithms import OF_HEADS, OF_LAYERS
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.disagreement import LENGTH_FLOOR
from capsnmt.modules.head_aggregation import HeadRouting
from capsnmt.modules.layer_aggregation.routing import LayerRouting

ROUTING = (CapsuleAttention, HeadRouting, LayerRouting)


def skewness(C: Tensor, inputs: Tensor) -> Tensor:
    r"""Return the mean entropy of the inputs' coefficients, ``[...]``, for C ``[..., I, N]``.

    .. math:: -\frac{1}{I} \sum_i \sum_n C_{in} \log C_{in}

    over the ``inputs`` ``[..., I]`` that take part; C is 0 at the others.

    **D**: equation 17 lacks the minus and divides by N. The reported 6.24 for a uniform C is
    log 512, which only this form gives.
    """
    return -torch.xlogy(C, C).sum((-2, -1)) / inputs.sum(-1).clamp(min=1)


def diversity(C: Tensor, outputs: Tensor) -> Tensor:
    r"""Return the mean dissimilarity of the output capsules, ``[...]``, for C ``[..., I, N]``.

    .. math:: 1 - \frac{1}{N (N - 1)} \sum_{n \neq m} \cos(C_{\cdot n}, C_{\cdot m})

    computed as :math:`(|\sum_n u_n|^2 - \sum_n |u_n|^2) / N (N - 1)` with unit vectors u, over the
    ``outputs`` ``[..., N]`` that take part, as C is 0 at the others; NaN for one output.

    **D**: equation 18 is the mean cosine. The reported value for a uniform C, where every cosine is
    1, is 0.0.
    """
    unit = C / C.norm(dim=-2, keepdim=True).clamp(min=LENGTH_FLOOR)
    count = outputs.sum(-1)
    of_pairs = unit.sum(-1).square().sum(-1) - unit.square().sum((-2, -1))
    pairs = (count * (count - 1)).to(C.dtype)
    return 1 - of_pairs / pairs.masked_fill(count < 2, torch.nan)


class Agreement(Analysis):
    """Entropy (eq 17) and diversity (eq 18) of C per iteration, and its mean over all tokens."""

    name = "agreement"
    columns = ("place", "kind", "layer", "iteration", "entropy", "diversity")

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if not any(isinstance(module, ROUTING) for _, _, module in places(model.model)):
            raise NotApplicableError(
                f"nothing is routed, as by --head-aggregation {', '.join(OF_HEADS)}, "
                f"--layer-aggregation {', '.join(OF_LAYERS)}, --capsule-routing-encoder or -decoder"
            )

    def on_routing(self, call: RoutingCall) -> None:
        real = call.routings
        for iteration, C in enumerate(call.coefficients, 1):
            key = call.place, call.kind, call.layer, iteration
            entropies = skewness(C, call.inputs) * real
            self.means["entropy"].add(key, entropies.sum(), real.sum())
            of_each = diversity(C, call.outputs)
            counted = real & ~of_each.isnan()
            self.means["diversity"].add(key, of_each[counted].sum(), counted.sum())
        if call.kind in ("heads", "layers"):  # the same inputs and outputs for every token
            sums = [(C * real[..., None, None]).sum((0, 1)) for C in call.coefficients]
            self.means["C"].add((call.place, call.layer), torch.stack(sums), real.sum())

    def rows(self) -> List[Sequence[Cell]]:
        entropy, diversity = self.means["entropy"], self.means["diversity"]
        return [(*key, entropy[key].item(), diversity[key].item()) for key in sorted(entropy)]

    def maps(self) -> Dict[Tuple[str, int], Tensor]:
        """Return the mean C of each iteration ``[T, I, N]``, by place and layer.

        **D**: the output capsules are sorted by their strongest input in the last iteration, then
        by its strength: their order has no meaning of its own, and structure shows.
        """
        means = {key: self.means["C"][key] for key in sorted(self.means["C"])}
        return {key: C[..., by_strongest_input(C[-1])] for key, C in means.items()}

    @classmethod
    def figures(cls, models: Mapping[str, Any]) -> List[Figure]:
        return [
            Figure(
                f"agreement-{name}-{place}-{layer}",
                f"Mean C of {name}, {in_words(place, layer)}, over tokens, one panel per "
                f"iteration. {C.size(1)} inputs in rows, {C.size(2)} output capsules in columns, "
                "sorted by their strongest input.",
                partial(
                    matrices,
                    {f"iteration {number}": each for number, each in enumerate(C, 1)},
                    ("mean C", "input capsule", "output capsule"),
                ),
            )
            for name, analysis in models.items()
            for (place, layer), C in analysis.maps().items()
        ]


def by_strongest_input(C: Tensor) -> List[int]:
    """Return the output capsules of C ``[I, N]`` in the order of their strongest input."""
    strength, strongest = C.max(0)
    return sorted(range(C.size(1)), key=lambda n: (int(strongest[n]), -float(strength[n])))
