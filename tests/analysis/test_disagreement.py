"""The disagreement of a trained model is what the criterion measures, layer by layer."""

from __future__ import annotations

from typing import List

import pytest
import torch

from capsnmt.analysis.disagreement import Disagreement
from capsnmt.models import PRESETS
from capsnmt.modules.disagreement import TERMS, record_disagreement
from tests.analysis.passes import make_batch, pass_through, run
from tests.support import EVERYWHERE, build

ROLES = ("enc-self", "enc-dec", "dec-self")
MODELS = {
    **{arch: (arch,) for arch in PRESETS},
    **{
        kind: ("capsnmt_transformer", "--head-aggregation", kind, *EVERYWHERE)
        for kind in ("gated", "talking")
    },
}


@pytest.mark.parametrize("left_pad", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("flags", MODELS.values(), ids=MODELS)
def test_the_mean_over_layers_is_the_criterions_term(flags: tuple, left_pad: bool) -> None:
    model, batch = build(*flags, "--dropout", "0.5"), make_batch(left_pad)
    with record_disagreement(TERMS, ROLES) as record:
        pass_through(model, batch)
    rows: List = run(Disagreement, model, batch).rows()
    for role in ROLES:
        of_role = torch.tensor([row[2:] for row in rows if row[0] == role])
        expected = [record.mean(role, term, batch.source, batch.target) for term in TERMS]
        torch.testing.assert_close(of_role.mean(0), torch.stack(expected).to(of_role))
