"""How decoding stores the linear maps: other strides, same values."""

from __future__ import annotations

import copy

import torch
from torch import nn

from capsnmt.models.inference import linear_maps
from tests.models.test_autocast import SOURCES, TARGETS
from tests.support import build, build_system, every_system, forward


@every_system
def test_a_prepared_model_computes_the_same(name: str) -> None:
    model = build_system(name)
    prepared = copy.deepcopy(model)
    prepared.make_generation_fast_()
    maps = [module for module in linear_maps(prepared) if isinstance(module, nn.Linear)]
    assert maps
    assert all(module.weight.stride(0) == 1 for module in maps)
    for (key, ours), theirs in zip(prepared.state_dict().items(), model.state_dict().values()):
        # fairseq never sets this number, which may be none
        assert key.endswith("_float_tensor") or ours.equal(theirs), key
    with torch.no_grad():
        found, expected = (forward(each, SOURCES, TARGETS) for each in (prepared, model))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_shared_embedding_keeps_its_matrix() -> None:
    model = build("capsnmt_transformer")
    embedded = model.decoder.embed_tokens.weight
    assert model.decoder.output_projection.weight is embedded
    model.make_generation_fast_()
    assert model.decoder.embed_tokens.weight is embedded
    assert embedded.is_contiguous()


def test_other_precisions_stay_as_they_are() -> None:
    model = build("capsnmt_transformer").double()
    model.make_generation_fast_()
    assert all(p.is_contiguous() for p in model.parameters())
