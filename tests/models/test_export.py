"""``torch.export`` of encoder and decoder: the program computes the same at other sizes."""

from __future__ import annotations

from typing import Any, Tuple

import pytest
import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

from tests.support import EVERY_COMMIT, PAD, SYSTEMS, batch, build, sentences, shifted

pytestmark = pytest.mark.skipif(
    TorchVersion(torch.__version__) < (2, 6), reason="its torch.export has no Dim.AUTO"
)
# positions that a graph can contain come with --compile
MANY = ("--head-aggregation", "em", "--layer-aggregation", "dlcl", "--mlmha", "M-10")


class Encoding(nn.Module):
    """What the encoder hands to the decoder."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        return self.model.encoder(source)["encoder_out"][0] + previous.sum() * 0


class Logits(Encoding):
    """The scores of the words after a prefix, as a step of decoding computes them."""

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        return self.model.decoder(previous, self.model.encoder(source))[0]


def arguments(*lengths: int) -> Tuple[Tensor, Tensor]:
    """A padded batch: source and the decoder's input."""
    target = batch(sentences(*reversed(lengths), seed=1), left_pad=False)
    return batch(sentences(*lengths), left_pad=True), shifted(target)


# with every commit several mechanisms at once, at night every system
MODELS = {"many": ("capsnmt_transformer", MANY), **dict(list(SYSTEMS.items())[:EVERY_COMMIT])}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "many" else [pytest.mark.nightly]) for name in MODELS],
)
@pytest.mark.parametrize("part", [pytest.param(Encoding, marks=pytest.mark.nightly), Logits])
def test_an_exported_model_computes_the_same_at_other_sizes(part: Any, name: str) -> None:
    arch, flags = MODELS[name]
    module = part(build(arch, "--compile", *flags)).eval()
    module(*arguments(14))  # fairseq's tables of positions and masks grow, and a program keeps them
    auto = torch.export.Dim.AUTO
    shapes = ({0: auto, 1: auto}, {0: auto, 1: auto})
    program = torch.export.export(module, arguments(7, 4, 5), dynamic_shapes=shapes).module()
    for lengths in ((7, 4, 5), (9, 2)):
        given = arguments(*lengths)
        found, expected = program(*given), module(*given)
        if part is Logits:  # what a padded word has is read by nobody
            found, expected = (scores[given[1].ne(PAD)] for scores in (found, expected))
        torch.testing.assert_close(found, expected)
