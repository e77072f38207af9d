"""The criterions of the plugin; importing this registers them."""

from capsnmt.criterions.label_smoothed_cross_entropy_with_disagreement import (
    LabelSmoothedCrossEntropyWithDisagreementCriterion,
)

__all__ = ["LabelSmoothedCrossEntropyWithDisagreementCriterion"]
