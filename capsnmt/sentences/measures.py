"""Counts of predictions that add up over batches and workers, and the metrics they give."""

from dataclasses import dataclass
from typing import Any, Dict, Sequence

import numpy as np

from capsnmt.runs.records import Bucket, Measures


@dataclass
class Counts:
    """Counts of predictions."""

    classes: Any  # [3, C]: true positives, predictions and references per class
    buckets: Dict[int, Any]  # correct examples and all examples per bucket

    @classmethod
    def of(cls, outcomes: Any, num_classes: int) -> "Counts":
        """Count ``outcomes [3, n]``: predicted class, true class and bucket of n examples.

        >>> counts = Counts.of(np.array([[0, 1, 1], [0, 1, 0], [5, 5, 7]]), 2)
        >>> counts.classes.tolist(), {b: n.tolist() for b, n in counts.buckets.items()}
        ([[1, 1], [1, 2], [2, 1]], {5: [2, 2], 7: [0, 1]})
        """
        predicted, truth, bucket = np.asarray(outcomes, dtype=np.int64)
        right = predicted == truth
        rows = [np.bincount(x, minlength=num_classes) for x in (truth[right], predicted, truth)]
        return cls(
            np.stack(rows),
            {
                int(b): np.array([np.sum(right & (bucket == b)), np.sum(bucket == b)])
                for b in np.unique(bucket)
            },
        )

    def measures(self, class_names: Sequence[str]) -> Measures:
        """Return all measures; ``majority`` is that of predicting the most frequent true class."""
        f1 = f1_scores(self.classes)
        right, _, total = map(int, self.classes.sum(1))
        return Measures(
            examples=total,
            accuracy=accuracy(right, total),
            macro_f1=macro_f1(self.classes),
            majority=accuracy(int(self.classes[2].max()), total),
            f1_by_class={name: float(x) for name, x in zip(class_names, f1)},
            by_bucket={
                b: Bucket(examples=int(n), accuracy=accuracy(int(correct), int(n)))
                for b, (correct, n) in sorted(self.buckets.items())
            },
        )


def accuracy(right: float, total: float) -> float:
    """Return the percentage of correct examples; 0 if there are none."""
    return 100.0 * float(right) / max(1.0, float(total))


def f1_scores(classes: Any) -> Any:
    r"""Return the F1 of each class in percent, :math:`2 r / (p + t)`; 0 for an absent class."""
    right, predicted, truth = classes
    return 100.0 * 2 * right / np.maximum(1, predicted + truth)


def macro_f1(classes: Any) -> float:
    """Return the mean F1, in percent, of the classes that occur as reference or prediction.

    **D**: as in scikit-learn, classes that occur as neither are left out.

    >>> macro_f1(np.array([[1, 1, 0], [1, 2, 0], [2, 1, 0]]))
    66.66666666666667
    """
    occurs = classes[1] + classes[2] > 0
    return float(f1_scores(classes)[occurs].mean()) if occurs.any() else 0.0
