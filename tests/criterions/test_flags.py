"""The criterion's flags reach it; bad settings are one line."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest
from fairseq.criterions import build_criterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from capsnmt.cli import ConfigurationError
from tests.criterions.samples import NAME, SAMPLE, criterion, train
from tests.support import TASK, parse


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"disagreement": "outputs"}, "--disagreement: 'outputs'.*subspace, position, output"),
        ({"disagreement": ""}, "--disagreement: ''.*subspace, position, output"),
        ({"disagreement": "output,"}, "--disagreement: ''"),
        (
            {"disagreement_attention": "encoder"},
            "--disagreement-attention: 'encoder'.*enc-self, enc-dec, dec-self",
        ),
        ({"disagreement_weight": -1}, "--disagreement-weight: -1: give a number of 0 or more"),
        ({"disagreement_weight": float("nan")}, "--disagreement-weight: nan"),
        ({"disagreement_weight": float("inf")}, "--disagreement-weight: inf"),
        ({"disagreement_start_update": -1}, "--disagreement-start-update: -1: give a number"),
        ({"disagreement_ramp_updates": -5}, "--disagreement-ramp-updates: -5: give a number"),
    ],
)
def test_a_bad_value_is_one_line_when_the_criterion_is_built(
    settings: Dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        criterion(**settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arch", "flags", "attention", "message"),
    [
        ("transformer", (), "enc-self", "no enc-self attention.*use an --arch of capsnmt"),
        (
            "capsnmt_transformer",
            ("--no-cross-attention",),
            "enc-self,enc-dec",
            "no enc-dec attention.*enc-self, dec-self",
        ),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_an_attention_that_the_model_lacks_is_refused(
    arch: str, flags: Tuple[str, ...], attention: str, message: str, training: bool
) -> None:
    model = train(*flags, arch=arch).train(training)
    with pytest.raises(SystemExit, match=message) as error:
        criterion(disagreement_attention=attention)(model, SAMPLE)
    assert "\n" not in str(error.value)


def test_the_flags_reach_the_criterion_and_have_the_promised_defaults() -> None:
    given = [
        *("--disagreement", "subspace,position", "--disagreement-attention", "enc-dec"),
        *("--disagreement-weight", "0.5", "--label-smoothing", "0.2"),
    ]
    built = []
    for flags in (given, []):
        args = parse("capsnmt_transformer", "--criterion", NAME, *flags)
        built.append(build_criterion(convert_namespace_to_omegaconf(args).criterion, TASK))
    flagged, default = (criterion.penalty for criterion in built)
    assert (flagged.terms, flagged.attentions) == ({"subspace", "position"}, {"enc-dec"})
    assert (flagged.weight, built[0].eps) == (0.5, 0.2)
    assert (default.terms, default.attentions, default.weight) == ({"output"}, {"enc-self"}, 1.0)
