"""The numbers of parameters of layer aggregation, exact and as the papers print them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from capsnmt.modules.layer_aggregation import (
    TransparentMixture,
    layer_aggregation,
    layer_connection,
)

# (mode, own) -> exact counts of base (512, 2,048, 6 layers) and big (1,024, 4,096, 6 layers)
PARAMETERS = {
    ("linear", False): (1_572_864, 6_291_456),
    ("iterative", False): (15_746_560, 62_950_400),
    ("dynamic", False): (12_588_032, 50_341_888),
    ("attention", False): (1_024, 2_048),
    ("dynamic-routing", False): (18_880_512, 75_509_760),
    ("em-routing", False): (28_321_792, 113_266_688),
    ("dynamic-routing", True): (3_151_872, 12_595_200),
    ("em-routing", True): (4_728_832, 18_894_848),
}


# (mode, pre-norm) -> exact counts of base and big
CONNECTED = {
    ("dlcl", True): (28 + 7 * 1_024, 28 + 7 * 2_048),
    ("dlcl", False): (28 + 6 * 1_024, 28 + 6 * 2_048),
    ("dense", True): (27, 27),
    ("dense", False): (27, 27),
}


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("mode", "own"), PARAMETERS)
def test_base_and_big_have_the_exact_number_of_parameters(mode: str, own: bool) -> None:
    with torch.device("meta"):
        counts = tuple(
            count(layer_aggregation(mode, d, 6, ffn, own=own))
            for d, ffn in ((512, 2048), (1024, 4096))
        )
    assert counts == PARAMETERS[mode, own]


@pytest.mark.parametrize(("mode", "pre_norm"), CONNECTED)
def test_a_connection_of_base_and_big_has_the_exact_number_of_parameters(
    mode: str, pre_norm: bool
) -> None:
    counts = tuple(count(layer_connection(mode, d, 6, pre_norm)) for d in (512, 1024))
    assert counts == CONNECTED[mode, pre_norm]


def test_the_transparent_mixture_of_base_has_42_parameters() -> None:
    assert count(TransparentMixture(7, 6)) == 42
