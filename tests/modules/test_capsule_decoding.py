"""Capsule-routing self-attention one position at a time, as beam search runs it."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest
import torch
from torch import Tensor

from tests.modules.test_capsule_attention import HEADS, attention, future, inputs


@pytest.mark.parametrize("padded", [(), (0, 1), (4, 5)], ids=["unpadded", "left", "later"])
def test_decoding_under_beam_reordering_equals_the_full_pass(
    padded: Tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step, the beam shuffled, doubled and shrunk before every step: scores and outputs."""
    module, length = attention("horizontal"), 8
    routed: List[Tensor] = []
    route_scores = module.route_scores

    def recorded(*arguments: Any) -> Tensor:
        routed.append(route_scores(*arguments))
        return routed[-1]

    monkeypatch.setattr(module, "route_scores", recorded)
    torch.manual_seed(2)
    state: Dict[str, Any] = {}
    prefixes = inputs(0, batch=6)
    padding = torch.zeros(6, length, dtype=torch.bool)
    padding[0::2, list(padded)] = True
    for step in range(length):
        survivors = prefixes.size(1) - (step in (3, 6))
        order = torch.randint(prefixes.size(1), (survivors,))
        prefixes = prefixes[:, order]
        padding = padding[order]
        module.reorder_incremental_state(state, order)
        word = inputs(1, survivors, seed=step)
        prefixes = torch.cat([prefixes, word])
        newest = padding[:, step : step + 1]  # the host gives a mask only where there is padding
        stepped, _ = module(word, word, word, newest if newest.any() else None, state)
        full, _ = module(
            *(prefixes, prefixes, prefixes),
            padding[:, : step + 1],
            attn_mask=future(step + 1),
        )
        seen = ~padding[:, step]
        scores, expected = (cube[:, :, -1][seen] for cube in routed[-2:])
        torch.testing.assert_close(scores, expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(stepped[0][seen], full[-1][seen], rtol=1e-10, atol=1e-10)


def test_the_beam_reorders_everything_the_cache_holds() -> None:
    """The keys must not lose the score rows, nor the rows the keys."""
    module, state = attention("horizontal"), {}
    for word in inputs(3, batch=4).split(1):
        module(word, word, word, incremental_state=state)
    before = dict(module._get_input_buffer(state))
    order = torch.tensor([3, 3, 0])
    module.reorder_incremental_state(state, order)
    after = module._get_input_buffer(state)
    kept = {name for name, tensor in after.items() if tensor is not None}
    assert kept == {"prev_key", "prev_value", "prev_scores"}
    assert after["prev_scores"].shape == (3, HEADS, 3, 3)
    assert all(torch.equal(after[name], before[name][order]) for name in kept)


def test_several_positions_in_one_decoding_step_are_refused() -> None:
    x = inputs(3)
    with pytest.raises(ValueError, match=r"one position per step, not 3: feed a prefix one"):
        attention("horizontal")(x, x, x, incremental_state={})
