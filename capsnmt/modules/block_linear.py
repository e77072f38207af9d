"""Linear maps with a block-diagonal matrix, without its zeros."""

import torch
from torch import Tensor, nn


def block_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return W_l x_l + b_l of the L blocks of x ``[..., L in]``, as one batched product.

    Args:
        weight: ``[L, out, in]``.
        bias: ``[L out]``.
    """
    blocks, out_width, in_width = weight.shape
    by_block = x.reshape(-1, blocks, in_width).transpose(0, 1)
    b = bias.view(blocks, 1, out_width)
    y = torch.baddbmm(b, by_block, weight.transpose(1, 2)).transpose(0, 1).flatten(1)
    return y.reshape(x.shape[:-1] + y.shape[1:])


class BlockLinear(nn.Module):
    """A linear map with a block-diagonal matrix: block l of the output reads block l of the input.

    Args:
        num_blocks: L, a divisor of both widths.
        in_features: width of the input.
        out_features: width of the output.
    """

    def __init__(self, num_blocks: int, in_features: int, out_features: int) -> None:
        super().__init__()
        shape = (num_blocks, out_features // num_blocks, in_features // num_blocks)
        self.weight = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(out_features))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in]`` to ``[..., out]``."""
        return block_linear(x, self.weight, self.bias)
