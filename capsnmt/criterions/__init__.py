"""The criterions of the plugin; importing them registers them."""

from capsnmt.criterions.chunked_label_smoothed_cross_entropy import (
    ChunkedLabelSmoothedCrossEntropyCriterion,
)
from capsnmt.criterions.label_smoothed_cross_entropy_with_disagreement import (
    LabelSmoothedCrossEntropyWithDisagreementCriterion,
)
from capsnmt.criterions.sentence_classification import SentenceClassificationCriterion

__all__ = [
    "ChunkedLabelSmoothedCrossEntropyCriterion",
    "LabelSmoothedCrossEntropyWithDisagreementCriterion",
    "SentenceClassificationCriterion",
]
