"""Disagreement regularisation of attention heads, for any criterion (Li et al. 2021, sec. 3.1)."""

from __future__ import annotations

import itertools
import math
from typing import Any, ContextManager, Dict, List, Tuple

from fairseq.logging import metrics
from torch import Tensor, nn

from capsnmt.errors import ConfigurationError
from capsnmt.models.config import ATTENTIONS
from capsnmt.models.selection import parse_attentions, parse_choices
from capsnmt.modules.attention import Attention
from capsnmt.modules.disagreement import TERMS, DisagreementRecord, record_disagreement

PREFIX = "disagreement_"

Measured = Dict[Tuple[str, str], Tensor]


class DisagreementPenalty:
    r"""The sum of the chosen terms over the chosen attentions, times lambda.

    .. math::
        \lambda \sum_{a} \sum_{t} \frac{1}{|\mathrm{layers}_a|}
        \sum_{l \in \mathrm{layers}_a} D_{t}(a, l)

    Args:
        terms: ``--disagreement``.
        attentions: ``--disagreement-attention``.
        weight: ``--disagreement-weight``, lambda.

    Raises:
        ConfigurationError: a term or an attention is unknown, or the weight is not a finite number
            >= 0.
    """

    def __init__(self, terms: str, attentions: str, weight: float) -> None:
        self.terms = parse_choices(terms, TERMS, "disagreement")
        self.attentions = parse_attentions(attentions, "disagreement_attention")
        self.weight = float(weight)
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise ConfigurationError(
                f"--disagreement-weight: {weight}: give a number of 0 or more "
                f"(the paper uses 1.0; 0 only measures)"
            )

    def recording(self) -> ContextManager[DisagreementRecord]:
        """Return a context in which the attentions of the model measure the terms."""
        return record_disagreement(self.terms, self.attentions)

    def require_attentions(self, model: nn.Module, record: DisagreementRecord) -> None:
        """Exit with the reason if the model has no attention of a chosen kind.

        The first training step is the earliest place to check: before it there is no model.

        Raises:
            SystemExit: one line. An ``Exception`` would make fairseq's trainer write ``crash.pt``.
        """
        silent = self.attentions - {attention for attention, _ in record.values}
        if silent:  # or layer dropout has dropped every layer of an existing attention
            modules = (module for module in model.modules() if isinstance(module, Attention))
            existing = {module.role for module in modules if module.role is not None}
            for attention in sorted(silent - existing):
                has = ", ".join(name for name in ATTENTIONS if name in existing)
                raise SystemExit(
                    f"--disagreement-attention: this model has no {attention} attention to "
                    f"measure: " + (f"choose from {has}" if has else "use an --arch of capsnmt")
                )

    def measure(
        self, record: DisagreementRecord, source: Tensor, target: Tensor, like: Tensor
    ) -> Measured:
        """Return the mean of each chosen term in each chosen attention, 0 where no layer ran.

        Every worker has the same keys in the same order: fairseq sums logged values by position.

        Args:
            record: the terms that the attentions have measured.
            source: ``[B, S]``, true at the real tokens of the source.
            target: ``[B, T]``, true at the real tokens of the decoder's input.
            like: a tensor of the dtype and device of the loss.
        """
        measured = {}
        for term, attention in itertools.product(TERMS, ATTENTIONS):
            if term in self.terms and attention in self.attentions:
                mean = record.mean(attention, term, source, target)
                measured[term, attention] = like.new_zeros(()) if mean is None else mean
        return measured

    def of(self, measured: Measured) -> Tensor:
        """Return the penalty for the measured terms."""
        return self.weight * sum(measured.values())

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
    names = dict.fromkeys(name for log in logging_outputs for name in log)
    for name in names:
        if name.startswith(PREFIX):
            total = sum(log.get(name, 0) for log in logging_outputs)
            metrics.log_scalar(name, total / sample_size, sample_size, round=3)
