"""The kernels of our beam search on a CPU against torch: the choice of words, and attention."""

from __future__ import annotations

from typing import Tuple

import pytest
import torch

from capsnmt.fast.search.decoding import attend, choose
from capsnmt.modules import shortcuts


@pytest.mark.parametrize("words", [40, 1013, 4096])
@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("only", [-1, 7])
def test_the_kernel_chooses_as_torch_does(words: int, beam: int, only: int) -> None:
    torch.manual_seed(words)
    logits = torch.randn(3 * beam, words) * 3
    logits[0, 1] = 50.0  # pad, which must not be chosen
    logits[-1, 2:] = -torch.inf
    totals = -3 * torch.rand(3, beam)
    found = choose(logits, totals, 2 * beam, 1, 2, only)
    expected = choose(logits.double(), totals, 2 * beam, 1, 2, only)
    torch.testing.assert_close(found[0], expected[0])
    possible = expected[0] > -torch.inf
    assert possible.any()
    for ours, theirs in zip(found[1:], expected[1:]):
        assert ours[possible].equal(theirs[possible])
    normal = logits.log_softmax(-1) - 1  # they need not sum to 1
    for given in (normal, normal.double()):
        scores, chosen, beams = choose(given, totals, 2 * beam, 1, 2, only, normal=True)
        rows = torch.arange(3).unsqueeze(1) * beam + beams
        expected = given[rows, chosen] + totals.gather(1, beams)
        torch.testing.assert_close(scores[possible], expected[possible])
    half = logits.bfloat16()
    for ours, theirs in zip(
        *(choose(x, totals, 2 * beam, 1, 2, only) for x in (half, half.float()))
    ):
        assert ours.equal(theirs)
    logits[beam] = torch.nan
    assert choose(logits, totals, 2 * beam, 1, 2, -1)[0][1].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("sizes", "widths"),  # B, H, k, S; of keys and values
    [((3, 2, 5, 21), (64, 64)), ((1, 3, 1, 1), (5, 18)), ((2, 1, 4, 130), (48, 16))],
)
@pytest.mark.parametrize("masked", ["hypotheses", "sentences", "no"])
def test_the_kernel_attends_as_torch_does(
    dtype: torch.dtype, sizes: Tuple[int, ...], widths: Tuple[int, int], masked: str
) -> None:
    """In any layout; the kernel rounds less than torch's products of bf16."""
    torch.manual_seed(sum(sizes))
    sentences, heads, rows, slots = sizes
    q = torch.randn(sentences, rows, heads, widths[0]).transpose(1, 2).to(dtype)
    k, v = (torch.randn(slots, sentences, heads, n).permute(1, 2, 0, 3).to(dtype) for n in widths)
    mask = None
    if masked != "no":
        shape = (sentences, rows, slots) if masked == "hypotheses" else (sentences, slots)
        unseen = torch.rand(shape) < 0.4
        unseen[..., -1] = False
        mask = torch.zeros(shape).masked_fill(unseen, -torch.inf)
    found = attend(q, k, v, mask, 0.3)
    assert found.shape == (sentences, heads, rows, widths[1])
    assert found.dtype == dtype
    exact = [x.double() for x in (q, k, v)]
    expected = shortcuts.attend(*exact, mask, 0.3)
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 8e-3, "atol": 1e-2}
    torch.testing.assert_close(found.double(), expected, **near)
    assert attend(*exact, mask, 0.3).equal(expected)  # fp64 is torch's


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_keys_of_one_head_serve_all_and_no_others_are_read(dtype: torch.dtype) -> None:
    """Multi-query attention (Shazeer 2019), of a user's own; torch broadcasts them."""
    torch.manual_seed(1)
    q = torch.randn(2, 4, 3, 8).to(dtype)
    k, v = (torch.randn(2, 1, 20, 8).to(dtype) for _ in range(2))
    expected = shortcuts.attend(q.double(), k.double(), v.double(), None, 0.3)
    torch.testing.assert_close(attend(q, k, v, None, 0.3).double(), expected, rtol=8e-3, atol=1e-2)
    for keys, values in ((k[..., :5], v), (k, v[:, :, :5]), (k[:1].repeat(1, 3, 1, 1), v)):
        with pytest.raises(RuntimeError):
            attend(q, keys, values, None, 0.3)
