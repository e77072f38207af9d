"""The C++ kernels of a search, of the loss and of attention over depth against torch in fp64."""

from typing import Tuple

import pytest
import torch

from capsnmt.fast.cpp.operations import attend, choose, mix_over_depth, softmax_
from capsnmt.modules import shortcuts
from capsnmt.modules.layer_aggregation.attention import depth_mixture


@pytest.mark.parametrize("words", [40, 1013, 4096])
@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("only", [-1, 7])
def test_the_kernel_chooses_as_torch_does(words: int, beam: int, only: int) -> None:
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
    q = torch.randn(2, 4, 3, 8).to(dtype)
    k, v = (torch.randn(2, 1, 20, 8).to(dtype) for _ in range(2))
    expected = shortcuts.attend(q.double(), k.double(), v.double(), None, 0.3)
    torch.testing.assert_close(attend(q, k, v, None, 0.3).double(), expected, rtol=8e-3, atol=1e-2)
    for keys, values in ((k[..., :5], v), (k, v[:, :, :5]), (k[:1].repeat(1, 3, 1, 1), v)):
        with pytest.raises(RuntimeError):
            attend(q, keys, values, None, 0.3)


@pytest.mark.parametrize("size", [(1, 1), (3, 40), (5, 1013), (64, 4096)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spread", [1, 30])
def test_the_softmax_and_the_loss_are_those_of_torch(
    size: Tuple[int, int], dtype: torch.dtype, spread: int
) -> None:
    scores = (torch.randn(size) * spread).to(dtype)
    words = torch.randint(size[1], (size[0], 1))
    exact = scores.double()
    expected = exact.softmax(-1)
    nll = softmax_(scores, words)
    torch.testing.assert_close(nll, -exact.log_softmax(-1).gather(1, words).float())
    torch.testing.assert_close(scores, expected.to(dtype))
    if dtype == torch.float32:  # and more closely than the default
        torch.testing.assert_close(scores.double(), expected, atol=1e-7, rtol=2e-6)


def test_scores_that_no_kernel_reads_are_left_to_torch() -> None:
    scores, words = torch.randn(4, 70), torch.randint(7, (4, 1))
    for ours in (scores.clone()[:, ::10], scores[:, :7].double(), scores[:, :7].half()):
        theirs = ours.clone(memory_format=torch.contiguous_format)
        assert softmax_(ours, words).equal(shortcuts.softmax_(theirs, words))
        assert ours.equal(theirs)


def test_a_score_that_is_no_number_makes_a_loss_that_is_none() -> None:
    for wrong in (torch.nan, torch.inf):
        scores = torch.randn(3, 50)
        scores[1, 20] = wrong
        nll = softmax_(scores, torch.zeros(3, 1, dtype=torch.long))
        assert nll.isnan().flatten().tolist() == [False, True, False]
        assert scores.isnan().any(-1).tolist() == [False, True, False]


@pytest.mark.parametrize("size", [1, 5, 16, 70, 512])
@pytest.mark.parametrize("count", [1, 2, 13])
def test_values_over_depth_are_mixed_as_by_torch(size: int, count: int) -> None:
    """Of values in any layout; one of them is 0, as of a layer that was dropped."""
    query = torch.randn(size)
    values = [3 * torch.randn(3, 4, size).transpose(0, 1) for _ in range(count)]
    values[-1] = torch.zeros_like(values[0])
    found = mix_over_depth(query, values)
    assert found is not None
    expected = depth_mixture(query.double(), *(x.double() for x in values))
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)


def test_values_that_no_kernel_mixes_are_left_to_torch() -> None:
    query, values = torch.randn(6), [torch.randn(2, 6), torch.randn(2, 6)]
    assert mix_over_depth(query, values) is not None
    for wrong in (torch.randn(1, 6), torch.randn(2, 6).half(), torch.randn(2, 6).requires_grad_()):
        assert mix_over_depth(query, [*values, wrong]) is None
    with torch.no_grad():
        assert mix_over_depth(query, [*values, values[0].clone().requires_grad_()]) is not None
