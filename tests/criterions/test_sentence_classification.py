"""The loss and measures of classification are those of sums over batches and workers."""

import math
from typing import Any, Dict, Sequence

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from torch import nn

from capsnmt.criterions.sentence_classification import (
    SentenceClassificationCriterion,
    SentenceClassificationCriterionConfig,
)
from capsnmt.modules.disagreement import TERMS, record_disagreement
from capsnmt.sentences.measures import Counts
from tests.criterions.samples import logged
from tests.sentences.systems import build, make_task
from tests.support import PAD, encoder_input, sentences

LENGTHS = (5, 3, 1, 4, 2, 6)
LINES = sentences(*LENGTHS)
TARGETS = [0, 3, 4, 3, 3, 1]


def criterion(**settings: Any) -> SentenceClassificationCriterion:
    cfg = SentenceClassificationCriterionConfig(**settings)
    return SentenceClassificationCriterion(make_task(1), cfg)


def make_sample(rows: Sequence[int] = range(6)) -> Dict[str, Any]:
    net_input = encoder_input([LINES[row] for row in rows])
    return {
        "net_input": net_input,
        "target": torch.tensor([TARGETS[row] for row in rows]),
        "bucket": torch.tensor([LENGTHS[row] // 2 for row in rows]),
        "ntokens": int(net_input["src_lengths"].sum()),
    }


def classifier(*flags: str) -> nn.Module:
    return build(*flags, num_sentences=1).double()


def test_the_loss_is_the_cross_entropy_summed_over_examples() -> None:
    model, sample = classifier(), make_sample()
    loss, size, logs = criterion()(model, sample)
    probabilities = model(**sample["net_input"]).softmax(-1)
    expected = -sum(math.log(row[label]) for row, label in zip(probabilities.tolist(), TARGETS))
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert (size, logs["nsentences"], logs["sample_size"]) == (6, 6, 6)
    assert logged(criterion(), [[logs]])["loss"] == pytest.approx(
        expected / 6 / math.log(2), abs=1e-3
    )


def test_the_measures_are_those_of_all_examples_however_they_are_split() -> None:
    """And the command of evaluation measures the same: tests/sentences/test_classify.py."""
    model = classifier().eval()

    def logs(*rows: int) -> Dict[str, Any]:
        return criterion()(model, make_sample(rows))[2]

    expected = logged(criterion(), [[logs(*range(6))]])
    unequal = [[logs(0, 1), logs(2)], [logs(3, 4, 5)]]
    assert logged(criterion(), unequal) == pytest.approx(expected)
    assert {"accuracy", "macro_f1"} <= expected.keys()


def test_counts_have_the_measures_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    predicted, truth, bucket = (draw.integers(n, size=50) for n in (4, 3, 2))
    measures = Counts.of([predicted, truth, bucket], 5).measures("abcde")
    assert measures.accuracy == pytest.approx(100 * accuracy_score(truth, predicted))
    # the fifth class never occurs, and the fourth is only predicted
    f1 = 100 * f1_score(truth, predicted, average=None)
    assert [*measures.f1_by_class.values()] == pytest.approx([*f1, 0])
    assert measures.macro_f1 == pytest.approx(f1.mean())
    assert measures.majority == pytest.approx(100 * np.bincount(truth).max() / 50)
    for number, found in measures.by_bucket.items():
        part = bucket == number
        right = accuracy_score(truth[part], predicted[part])
        assert (found.examples, found.accuracy) == (part.sum(), pytest.approx(100 * right))


@pytest.mark.parametrize("term", TERMS)
def test_disagreement_is_added_in_training_and_only_logged_in_validation(term: str) -> None:
    model, sample = classifier("--head-aggregation", "em").train(), make_sample()
    settings = {"disagreement": term, "disagreement_weight": 0.7}
    plain = criterion()(model, sample)[0]
    loss, size, logs = criterion(**settings)(model, sample)
    real = sample["net_input"]["src_tokens"].ne(PAD)
    with record_disagreement([term], ["enc-self"], real) as record:
        model(**sample["net_input"])
    values = record.values["enc-self", term]
    expected = torch.stack([(v * real).sum() / real.sum() for v in values]).mean()
    torch.testing.assert_close(loss, plain + 0.7 * size * expected)
    of_values = model.encoder.layers[0].self_attn.v_proj.weight
    assert not torch.allclose(*(torch.autograd.grad(x, of_values)[0] for x in (loss, plain)))
    assert logged(criterion(), [[logs]])[f"disagreement_{term}"] == pytest.approx(
        float(expected), abs=1e-3
    )
    model.eval()
    torch.testing.assert_close(
        criterion(**settings)(model, sample)[0], criterion()(model, sample)[0]
    )
