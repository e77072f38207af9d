"""A model prepared for decoding computes the same, by other functions of torch."""

from __future__ import annotations

import copy
from typing import List

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from capsnmt.cpu.linear import PreparedLinear
from capsnmt.modules import autocast
from tests.models.test_autocast import SOURCES, TARGETS
from tests.support import build, forward


@pytest.mark.parametrize("shape", [(3, 8, 5), (90, 130, 140), (7, 512, 520)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_prepared_map_is_the_map_in_every_size(shape: List[int], dtype: torch.dtype) -> None:
    """The sizes are computed by torch, by oneDNN, and by oneDNN with a packed matrix."""
    rows, inputs, outputs = shape
    linear = nn.Linear(inputs, outputs).to(dtype)
    expected = linear.weight.double(), linear.bias.double()
    linear.__class__ = PreparedLinear
    x = torch.randn(rows, 2, inputs).to(dtype)
    error = 2e-2 if dtype == torch.bfloat16 else 1e-5
    close = {"atol": error, "rtol": error}
    with torch.no_grad():
        for each in (linear, copy.deepcopy(linear)):
            torch.testing.assert_close(each(x).double(), F.linear(x.double(), *expected), **close)
        linear.weight.zero_()
        assert linear(x).allclose(linear.bias)
        linear.weight.copy_(expected[0])
        strided = x.transpose(0, 1)
        torch.testing.assert_close(linear(strided), linear(strided.contiguous()), **close)
    linear(x).sum().backward()
    summed = x.double().sum((0, 1)).expand(outputs, -1)
    torch.testing.assert_close(linear.weight.grad.double(), summed, atol=1, rtol=5e-2)


def test_a_shared_embedding_keeps_its_matrix() -> None:
    model = build("capsnmt_transformer")
    embedded = model.decoder.embed_tokens.weight
    assert model.decoder.output_projection.weight is embedded
    model.make_generation_fast_()
    assert model.decoder.embed_tokens.weight is embedded


@pytest.mark.usefixtures("bf16_machine")
@pytest.mark.parametrize(
    ("width", "flag", "precision"),
    [
        (16, "avx512_bf16", torch.float32),
        (16, "amx_bf16", torch.bfloat16),
        (512, "avx512_bf16", torch.bfloat16),
    ],
)
def test_a_narrow_model_decodes_in_bf16_only_where_that_is_faster(
    width: int, flag: str, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autocast, "cpu_flags", lambda: [flag])
    widths = (f"--{side}-embed-dim={width}" for side in ("encoder", "decoder"))
    model = build("capsnmt_transformer", "--autocast", "bf16", *widths)
    model.make_generation_fast_()
    with torch.no_grad():
        assert forward(model, SOURCES, TARGETS).dtype == precision
