"""Head outputs in the plane: the sample, the points and the scores."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, List

import numpy as np
import pytest
import torch
from torch import Tensor

from capsnmt.analysis import head_tsne
from capsnmt.analysis.base import NotApplicableError
from capsnmt.analysis.head_tsne import HeadProjection, project, silhouette
from tests.analysis.systems import LENGTHS, analysed, corpus, precise, system_of

MODELS = {
    "transformer": ("capsnmt_transformer",),
    "em routing": ("transformer_em_routing", "--head-aggregation-encoder-layers", "2"),
    "capsule attention": ("capsule_transformer",),
}


def heads_of(model: Any, source: Tensor) -> Tensor:
    """Return O of the top encoder layer, ``[tokens, H, d_h]``: the input of its aggregation."""
    found: List[Tensor] = []
    attention = model.encoder.layers[-1].self_attn
    hook = attention.out_proj.register_forward_hook(lambda _, inputs, __: found.append(inputs[0]))
    with torch.no_grad():
        model.encoder(source[None], src_lengths=torch.tensor([len(source)]))
    hook.remove()
    return found[0][:, 0].unflatten(-1, (attention.num_heads, -1))


@pytest.fixture
def sklearn() -> Any:
    return pytest.importorskip("sklearn")


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize("flags", MODELS.values(), ids=MODELS)
def test_it_keeps_the_outputs_of_the_heads_of_real_tokens(
    sklearn: Any, flags: Any, left_pad: bool
) -> None:
    model = precise(*flags)
    analysis = analysed(HeadProjection, system_of(model, left_pad))
    tokens = sum(LENGTHS) + len(LENGTHS)
    assert len({tuple(token) for token in analysis.sample.tolist()}) == tokens
    for (sentence, position), heads in zip(analysis.sample.tolist(), analysis.heads):
        expected = heads_of(model, corpus()[0][sentence])[position - 1]
        torch.testing.assert_close(heads, expected)


def test_a_row_is_one_head_of_one_token(sklearn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_tsne, "TOKENS", 6)
    system = system_of(precise("capsnmt_transformer"))
    analysis = analysed(HeadProjection, system)
    rows = analysis.rows()
    assert len(analysis.keys) == 6
    assert [row[2] for row in rows] == [1, 2, 3, 4] * 6
    assert len({row[3:5] for row in rows}) == 6
    assert {row[:2] for row in rows} == {("enc-self", 2)}
    assert [row[7] for row in rows] == analysis.silhouette.tolist()
    again = analysed(HeadProjection, system).rows()
    np.testing.assert_allclose([row[5:] for row in again], [row[5:] for row in rows], rtol=1e-4)


def test_every_token_has_the_same_chance(sklearn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 of 26 tokens, 60 times: within five standard deviations of 60 * 10 / 26 = 23."""
    monkeypatch.setattr(head_tsne, "TOKENS", 10)
    monkeypatch.setattr(HeadProjection, "finish", lambda self: None)
    system = system_of(precise("capsnmt_transformer"))
    count: Counter = Counter()
    for seed in range(60):
        drawn = analysed(HeadProjection, replace(system, seed=seed))
        count.update(map(tuple, drawn.sample.tolist()))
    assert len(count) == 26
    assert all(4 < times < 42 for times in count.values())


def by_definition(points: np.ndarray, groups: np.ndarray) -> List[float]:
    """Rousseeuw 1987: (b - a) / max(a, b) of the mean distances to the own and nearest group."""
    values = []
    for i, own in enumerate(groups):
        to = {
            group: np.mean(
                [
                    np.linalg.norm(points[i] - points[j])
                    for j in range(len(points))
                    if groups[j] == group and j != i
                ]
            )
            for group in set(groups.tolist())
        }
        a, b = to.pop(own), min(to.values())
        values.append((b - a) / max(a, b))
    return values


def test_the_silhouette_is_that_of_its_definition(sklearn: Any) -> None:
    points, groups = np.random.RandomState(0).randn(12, 3), np.arange(12) % 3
    np.testing.assert_allclose(silhouette(points, groups), by_definition(points, groups))


def test_heads_that_are_apart_are_apart_in_the_map(sklearn: Any) -> None:
    groups = np.arange(120) % 4
    points = np.random.RandomState(0).randn(120, 8) + 20 * np.eye(8)[groups]
    assert silhouette(points, groups).mean() > 0.7
    assert silhouette(project(points), groups).mean() > 0.7


@pytest.mark.parametrize("count", [2, 3, 8])
def test_few_or_equal_points_have_a_map(sklearn: Any, count: int) -> None:
    different = np.random.RandomState(0).randn(count, 4)
    assert np.isfinite(project(different)).all()
    assert not project(np.ones((count, 4))).any()
    assert np.isnan(silhouette(different, np.arange(count))).all()


def test_one_head_has_nothing_to_compare(sklearn: Any) -> None:
    with pytest.raises(NotApplicableError, match="one head"):
        HeadProjection(system_of(precise("capsnmt_transformer", "--encoder-attention-heads", "1")))


def test_without_scikit_learn_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    with pytest.raises(NotApplicableError, match=r"sklearn is not installed: pip install"):
        HeadProjection(system_of(precise("capsnmt_transformer")))
