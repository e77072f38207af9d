"""The kernel of attention over depth against torch in fp64, and where torch's runs instead."""

from __future__ import annotations

import pytest
import torch

from capsnmt.fast.depth import mixture
from capsnmt.modules.layer_aggregation.attention_residuals import depth_mixture


@pytest.mark.parametrize("size", [1, 5, 16, 70, 512])
@pytest.mark.parametrize("count", [1, 2, 13])
def test_the_kernel_mixes_as_torch_does(size: int, count: int) -> None:
    """Of values in any layout; one of them is 0, as of a layer that was dropped."""
    torch.manual_seed(size)
    query = torch.randn(size)
    values = [3 * torch.randn(3, 4, size).transpose(0, 1) for _ in range(count)]
    values[-1] = torch.zeros_like(values[0])
    found = mixture(query, values)
    assert found is not None
    expected = depth_mixture(query.double(), *(x.double() for x in values))
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=1e-5)


def test_what_the_kernel_does_not_compute_is_left_to_torch() -> None:
    query, values = torch.randn(6), [torch.randn(2, 6), torch.randn(2, 6)]
    assert mixture(query, values) is not None
    for wrong in (torch.randn(1, 6), torch.randn(2, 6).half(), torch.randn(2, 6).requires_grad_()):
        assert mixture(query, [*values, wrong]) is None
    with torch.no_grad():
        assert mixture(query, [*values, values[0].clone().requires_grad_()]) is not None
