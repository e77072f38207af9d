"""docs/flags.md names every flag of the plugin, its default and its values, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, Dict, List, Tuple

import pytest

import capsnmt.plugin  # noqa: F401  registers the criterions and tasks
from capsnmt.criterions.label_smoothed_cross_entropy_with_disagreement import (
    LabelSmoothedCrossEntropyWithDisagreementCriterionConfig,
)
from capsnmt.criterions.sentence_classification import SentenceClassificationCriterionConfig
from capsnmt.models import config
from capsnmt.models.validation import CHOICES
from capsnmt.modules.disagreement import TERMS
from capsnmt.sentences.config import SentenceClassifierConfig
from capsnmt.sentences.pooling import POOLINGS
from capsnmt.tasks.logical_inference import LogicalInferenceConfig
from capsnmt.tasks.probing import ProbingConfig
from tests.docs.pages import PAGES, REPO, prose, rows, sections

PAGE = REPO / "docs" / "flags.md"
# section -> the dataclasses whose flags it documents
SECTIONS = {
    "Head aggregation": [config.HeadAggregationConfig],
    "Layer aggregation": [config.LayerAggregationConfig],
    "Multi-layer attention": [config.MultiLayerAttentionConfig],
    "Capsule-routing self-attention": [config.CapsuleRoutingConfig],
    "Routing": [config.RoutingConfig],
    "Initialisation": [config.InitialisationConfig],
    "Disagreement": [LabelSmoothedCrossEntropyWithDisagreementCriterionConfig],
    "Sentence classification": [
        SentenceClassificationCriterionConfig,
        SentenceClassifierConfig,
        ProbingConfig,
        LogicalInferenceConfig,
    ],
}
VALUES: Dict[str, Tuple[str, ...]] = {
    **CHOICES,
    "head_aggregation_attention": config.ATTENTIONS,
    "disagreement_attention": config.ATTENTIONS,
    "disagreement": TERMS,
    "pooling": POOLINGS,
}
every_section = pytest.mark.parametrize("section", SECTIONS)


def own(group: Any) -> Dict[str, Any]:
    """Name -> default of the options that the dataclass has and its host's does not."""
    inherited = {option.name for base in group.__mro__[1:] for option in _options(base)}
    return {
        option.name: option.default
        for option in _options(group)
        if option.name not in inherited | {"data"}
    }


def _options(group: Any) -> List[Any]:
    return list(fields(group)) if hasattr(group, "__dataclass_fields__") else []


def documented(section: str) -> Dict[str, Tuple[str, str]]:
    """Name -> values and default, of each flag in the section's tables."""
    found = {}
    for cells in rows(dict(sections(PAGE))[section]):
        if cells[0].startswith("`--"):
            found[cells[0].strip("`")[2:].replace("-", "_")] = (cells[1], cells[2])
    return found


def spelled(default: Any) -> str:
    """How the page spells a default."""
    if default is False:
        return "off"
    return "none" if default is None else str(default)


@every_section
def test_a_section_has_exactly_the_flags_of_its_dataclasses_and_their_defaults(
    section: str,
) -> None:
    expected = {
        name: default for group in SECTIONS[section] for name, default in own(group).items()
    }
    page = {name: default.strip("`") for name, (_, default) in documented(section).items()}
    assert page == {name: spelled(default) for name, default in expected.items()}


@every_section
def test_a_flag_lists_every_value_that_it_may_have(section: str) -> None:
    for name, (values, _) in documented(section).items():
        for value in VALUES.get(name, ()):
            assert f"`{value}`" in values, f"--{name}: {value}"


def test_every_dataclass_of_the_model_has_a_section() -> None:
    in_sections = {group for groups in SECTIONS.values() for group in groups}
    assert set(config.MECHANISMS) <= in_sections


MECHANISM_FLAG = re.compile(
    r"--(?:head|layer|mlmha|capsule|routing|disagreement|probing|pooling|classifier|init-from)"
    r"[a-z-]*\b(?!\*)"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_flag_of_a_mechanism_that_a_page_names_exists(page: Any) -> None:
    exist = {
        config.flag(name) for groups in SECTIONS.values() for group in groups for name in own(group)
    }
    named = {found.rstrip("-") for found in MECHANISM_FLAG.findall(prose(page))}
    # a name that ends in * or _ stands for several
    unknown = {name for name in named - exist if not any(flag.startswith(name) for flag in exist)}
    assert not unknown
