"""Capsule-routing self-attention one position at a time, as beam search runs it."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest
import torch

from tests.modules.test_capsule_attention import attention, future, inputs


@pytest.mark.parametrize("padded", [(), (0, 1), (4, 5)], ids=["unpadded", "left", "later"])
def test_decoding_under_beam_reordering_equals_the_full_pass(padded: Tuple[int, ...]) -> None:
    """Step by step, the beam shuffled, doubled and shrunk before every step."""
    module, length = attention("horizontal"), 8
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
        torch.testing.assert_close(stepped[0][seen], full[-1][seen], rtol=1e-10, atol=1e-10)


def test_several_positions_in_one_decoding_step_are_refused() -> None:
    x = inputs(3)
    with pytest.raises(ValueError, match=r"one position per step, not 3: feed a prefix one"):
        attention("horizontal")(x, x, x, incremental_state={})
