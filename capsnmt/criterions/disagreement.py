"""Disagreement regularisation of attention heads, for any criterion (Li et al. 2021, sec. 3.1)."""

import itertools
from typing import Any, Dict, List, Tuple

from fairseq.logging import metrics
from torch import Tensor, nn

from capsnmt.models.selection import ATTENTIONS
from capsnmt.models.switches import words_of
from capsnmt.modules.attention import Attention
from capsnmt.modules.disagreement import TERMS, DisagreementRecord

PREFIX = "disagreement_"
WEIGHT: Dict[str, Any] = {"least": 0, "note": "the paper uses 1.0; 0 only measures"}
"""The bounds of lambda."""

Measured = Dict[Tuple[str, str], Tensor]


class DisagreementPenalty:
    r"""The sum of the chosen terms over the chosen attentions, times lambda.

    .. math::
        \lambda \sum_{a} \sum_{t} \frac{1}{|\mathrm{layers}_a|}
        \sum_{l \in \mathrm{layers}_a} D_{t}(a, l)

    The weight is constant, as in the paper, unless it starts later: 0 in the first N updates
    (``start_update``), then a linear ramp of M updates (``ramp_updates``) to lambda.
    """

    def __init__(
        self,
        terms: str,
        attentions: str,
        weight: float,
        start_update: int = 0,
        ramp_updates: int = 0,
    ) -> None:
        self.terms = words_of(terms)
        self.attentions = words_of(attentions)
        self.weight = float(weight)
        self.start_update = start_update
        self.ramp_updates = ramp_updates

    def weight_at(self, update: int) -> float:
        r"""Return the weight in the update after u others.

        .. math:: \lambda \cdot \min(1, \max(0, u - N + 1) / \max(1, M))

        >>> penalty = DisagreementPenalty("output", "enc-self", 1.0, start_update=2, ramp_updates=4)
        >>> [penalty.weight_at(update) for update in range(8)]
        [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
        """
        done = max(0, update - self.start_update + 1)
        return self.weight * min(1.0, done / max(1, self.ramp_updates))

    def require_attentions(self, model: nn.Module, record: DisagreementRecord) -> None:
        """Exit with the reason if the model has no attention of a chosen kind.

        The first training step is the earliest place to check: before it there is no model.

        Raises:
            SystemExit: one line. An ``Exception`` would make fairseq's trainer write ``crash.pt``.
        """
        silent = self.attentions - {attention for attention, _ in record.values}
        if silent:  # or layer dropout has dropped every layer of an existing attention
            existing = {m.role for m in model.modules() if isinstance(m, Attention) and m.role}
            for attention in sorted(silent - existing):
                has = ", ".join(name for name in ATTENTIONS if name in existing)
                raise SystemExit(
                    f"--disagreement-attention is {attention}, which this model does not have; "
                    + (f"choose from {has}" if has else "give an --arch of capsnmt")
                )

    def measure(self, record: DisagreementRecord, like: Tensor) -> Measured:
        """Return the mean of each chosen term in each chosen attention, 0 where no layer ran.

        Every worker has the same keys in the same order: fairseq sums logged values by position.
        ``like`` is like the loss.
        """
        measured = {}
        for term, attention in itertools.product(TERMS, ATTENTIONS):
            if term in self.terms and attention in self.attentions:
                mean = record.mean(attention, term)
                measured[term, attention] = like.new_zeros(()) if mean is None else mean
        return measured

    def by_name(self, measured: Measured) -> Dict[str, Tensor]:
        """Return the logged values: each term and, with several attentions, its part in each.

        **D**: a term over several attentions is their sum, as in the loss.
        """
        named: Dict[str, Tensor] = {}
        for (term, _), value in measured.items():
            named[PREFIX + term] = named.get(PREFIX + term, 0) + value
        if len(self.attentions) > 1:
            for (term, attention), value in measured.items():
                named[f"{PREFIX}{term}_{attention.replace('-', '_')}"] = value
        return named


def log_disagreement(logging_outputs: List[Dict[str, Any]]) -> None:
    """Log the terms summed over workers and accumulated batches."""
    sample_size = sum(log.get("sample_size", 0) for log in logging_outputs)
    names = (name for log in logging_outputs for name in log if name.startswith(PREFIX))
    for name in dict.fromkeys(names):
        total = sum(log.get(name, 0) for log in logging_outputs)
        metrics.log_scalar(name, total / sample_size, sample_size, round=3)
