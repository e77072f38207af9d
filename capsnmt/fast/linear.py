"""Linear maps of a model that only decodes, from packed matrices, also of 8-bit integers."""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.cli import ConfigurationError

LARGE = 2**18
"""Weights from which a matrix is packed, 512 x 512; a copy that oneDNN reads faster."""
FEW = 2**20
"""Products of a map's weights and rows below which a call of oneDNN costs more than it saves."""
ROWS = 320
"""Rows of a step of decoding for which matrices are packed: any number works."""
INTEGER_ENGINE = "fbgemm"
"""torch's library for products of 8-bit integers."""


def numbers_of(tensor: Tensor) -> Tuple[int, torch.dtype, int]:
    """Return what changes when a tensor gets other numbers, unless through its ``.data``."""
    version = -1 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), tensor.dtype, version


class PreparedLinear(nn.Linear):
    """A linear map of a model that only decodes.

    On a CPU oneDNN computes it: 2.3 times as fast as torch's own choice on an AMD EPYC (Zen 5).
    Its functions are private to torch: without them, and for gradients, it is ``nn.Linear``.
    """

    packed: Optional[Tuple[Any, Any]] = None

    def forward(self, x: Tensor) -> Tensor:
        """Map rows ``[..., in]`` to ``[..., out]``, in the precision of the weights."""
        weight, bias = self.weight, self.bias
        x = x if x.dtype == weight.dtype else x.to(weight.dtype)
        known = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)
        if not known or torch.is_grad_enabled() or not has_onednn():
            return F.linear(x, weight, bias)
        size = weight.numel()
        if size >= LARGE:
            weight = self.packed_by(pack_floats)
        elif x.numel() // x.size(-1) * size < FEW:
            return F.linear(x, weight, bias)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    def packed_by(self, pack: Callable[[Tensor, Optional[Tensor]], Any]) -> Any:
        """Return the matrix as a function packs it, once for its numbers."""
        parameters = [parameter for parameter in (self.weight, self.bias) if parameter is not None]
        numbers = [numbers_of(parameter) for parameter in parameters]
        if self.packed is None or self.packed[0] != numbers:
            bias = None if self.bias is None else self.bias.detach()
            self.packed = numbers, pack(self.weight.detach().contiguous(), bias)
        return self.packed[1]

    def __getstate__(self) -> Dict[str, Any]:
        """Return what a copy has: a packed matrix cannot be copied."""
        return {**self.__dict__, "packed": None}


class QuantizedLinear(PreparedLinear):
    """A prepared linear map that multiplies 8-bit integers; for gradients it is ``nn.Linear``.

        y_o = s w_o (q(x) - z) . q(W_o) + b_o

    Each row of the matrix has its own scale, ``w_o = max |W_o| / 127``. The input has one scale s
    and one zero z, by its extremes.

    **D**: these are the extremes of all rows, of every sentence: a translation may depend on the
    other sentences of its batch.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map rows ``[..., in]`` to ``[..., out]`` in fp32.

        Raises:
            ConfigurationError: if the parameters have got another type since they were prepared.
        """
        if self.weight.dtype != torch.float32:
            raise ConfigurationError(
                f"--autocast is int8, but the parameters are {self.weight.dtype}, not fp32; give "
                f"none or bf16"
            )
        if torch.is_grad_enabled():
            return super().forward(x)
        return torch.ops.quantized.linear_dynamic(x, self.packed_by(pack_integers))


def pack_floats(weight: Tensor, _bias: Optional[Tensor]) -> Tensor:
    """Return a matrix as oneDNN reads it fastest."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)


def pack_integers(weight: Tensor, bias: Optional[Tensor]) -> Any:
    """Return the parameters of a map in fp32 as torch's 8-bit product reads them."""
    scales = weight.abs().amax(1).double().div(127).clamp_min(torch.finfo(torch.float32).tiny)
    zeros, engine = torch.zeros_like(scales, dtype=torch.long), torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the type's removal from a later torch
        integers = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    torch.backends.quantized.engine = INTEGER_ENGINE
    try:
        return torch.ops.quantized.linear_prepack(integers, bias)
    finally:
        torch.backends.quantized.engine = engine


def has_integers() -> bool:
    """Return whether this torch multiplies 8-bit integers."""
    engines = torch.backends.quantized.supported_engines
    return INTEGER_ENGINE in engines and hasattr(torch, "quantize_per_channel")


@functools.cache
def has_onednn() -> bool:
    """Return whether this torch has the functions of oneDNN."""
    try:
        matrix = torch.eye(16, dtype=torch.float32)
        packed = torch.ops.mkldnn._reorder_linear_weight(matrix, 1)
        torch.ops.mkldnn._linear_pointwise(matrix, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return True
