"""Talking heads: how they start, where they mix, and what observers see of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from capsnmt.modules.disagreement import mean_cosine, mean_overlap, record_disagreement
from capsnmt.modules.head_aggregation import HeadMixing
from tests.modules.attention_oracle import HEADS, PADDINGS, WIDTH, attention, set_kind


def inputs(length: int = 5) -> Tensor:
    return torch.randn(length, 2, WIDTH, dtype=torch.float64)


def by_head(module: torch.nn.Module, x: Tensor) -> Tensor:
    return module(x).unflatten(-1, (HEADS, -1)).permute(1, 2, 0, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_mixing_starts_as_the_identity_in_every_precision(dtype: torch.dtype) -> None:
    mixing = HeadMixing(8).to(dtype)
    assert [tuple(p.shape) for p in mixing.parameters()] == [(8, 8)]
    x = (torch.randn(3, 8, 4, 5) * 30).to(dtype)
    assert torch.equal(mixing(x), x)


def test_both_mixings_start_without_effect() -> None:
    talking, plain = attention(), attention()
    set_kind(talking, "talking")
    talking.double()
    x = inputs()
    for need_weights in (False, True):
        torch.testing.assert_close(
            talking(x, x, x, need_weights=need_weights), plain(x, x, x, need_weights=need_weights)
        )


def test_a_term_of_disagreement_reads_distributions_and_the_heads_as_they_are_used() -> None:
    module, x = attention("talking"), inputs()
    module.role = "enc-self"
    with record_disagreement(["position", "output"], ["enc-self"]) as record:
        module(x, x, x, PADDINGS["left"], need_weights=False)
    q, k, v = (by_head(m, x) for m in (module.q_proj, module.k_proj, module.v_proj))
    scores = torch.einsum("gh,bhlk->bglk", module.score_mixing.weight, q @ k.mT * module.scaling)
    A = scores.masked_fill(PADDINGS["left"][:, None, None], -torch.inf).softmax(-1)
    O = torch.einsum("gh,bhlk->bglk", module.weight_mixing.weight, A) @ v
    torch.testing.assert_close(record.values["enc-self", "position"], [mean_overlap(A)])
    torch.testing.assert_close(record.values["enc-self", "output"], [mean_cosine(O)])


def test_dropout_is_applied_to_the_weights_that_multiply_the_values() -> None:
    """A dropped weight of one head is not made up for by another's."""
    module, x = attention("talking", dropout=0.5), inputs()
    given = []
    module.dropout_module.register_forward_hook(lambda _, args, out: given.append(args[0]))
    _, weights = module(x, x, x, need_head_weights=True)
    expected = torch.einsum("gh,hblk->bglk", module.weight_mixing.weight, weights)
    torch.testing.assert_close(given, [expected])
