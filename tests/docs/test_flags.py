"""docs/flags.md names every flag of the plugin, its default and its values, and no other."""

import itertools
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set, Tuple

import pytest

import capsnmt.plugin  # noqa: F401  registers the criterions and tasks
from capsnmt.criterions.chunked_label_smoothed_cross_entropy import (
    ChunkedLabelSmoothedCrossEntropyCriterionConfig,
)
from capsnmt.criterions.label_smoothed_cross_entropy_with_disagreement import (
    LabelSmoothedCrossEntropyWithDisagreementCriterionConfig,
)
from capsnmt.criterions.sentence_classification import SentenceClassificationCriterionConfig
from capsnmt.models import config
from capsnmt.models.switches import declared, flag
from capsnmt.sentences.classifier import FROZEN, SentenceClassifierConfig
from capsnmt.sentences.tasks import LogicalInferenceConfig, ProbingConfig
from tests.docs.pages import PAGES, REPO, name, rows, sections
from tests.frozen.cases.refusals import REFUSED

PAGE = REPO / "docs" / "flags.md"
OF_MODELS = (
    *("Head aggregation", "DropHead", "Layer aggregation", "Multi-layer attention"),
    *("SurfaceFusion", "Capsule-routing self-attention", "Routing"),
    *("Precision", "Compilation", "Initialisation"),
)
# sections -> the dataclasses whose flags they document
SECTIONS = {
    OF_MODELS: [config.SwitchesConfig],
    ("Loss",): [ChunkedLabelSmoothedCrossEntropyCriterionConfig],
    ("Disagreement",): [LabelSmoothedCrossEntropyWithDisagreementCriterionConfig],
    ("Sentence classification",): [
        SentenceClassificationCriterionConfig,
        SentenceClassifierConfig,
        ProbingConfig,
        LogicalInferenceConfig,
    ],
}
SWITCHES = declared(*(group for groups in SECTIONS.values() for group in groups))
VALUES = {name: switch.choices or switch.words for name, switch in SWITCHES.items()}


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


def spelled(default: Any) -> str:
    """How the pages spell a default."""
    if default is False:
        return "off"
    return "none" if default is None else str(default)


DEFAULTS: Dict[str, Set[str]] = {}
for _group in (group for groups in SECTIONS.values() for group in groups):
    for _option, _default in own(_group).items():
        DEFAULTS.setdefault(_option, set()).add(spelled(_default))
FLAG = re.compile(r"--([a-z][a-z-]*[a-z])(?![\w*-])")
# how only flags of mechanisms begin
MECHANISM = re.compile(
    r"head-a|head-c|drop-h|layer-a|layer-c|mlmha|surface|capsule|routing|disagreement|pooling|classifier|init-f"
)


def tables(page: Path) -> Iterator[Tuple[List[str], List[str]]]:
    """The options in the first cell of each row of a table of flags, and the row's cells."""
    titles: List[str] = []
    for cells in rows(page.read_text(encoding="utf-8")):
        if not cells[0].startswith("`--"):
            titles = cells if set(cells[0]) - set("-: ") else titles
        elif titles[:2] == ["flag", "values"]:
            yield [flag.replace("-", "_") for flag in FLAG.findall(cells[0])], cells


@pytest.mark.parametrize("some", SECTIONS)
def test_sections_have_exactly_the_flags_of_their_dataclasses_and_their_defaults(
    some: Tuple[str, ...],
) -> None:
    expected = {
        option: spelled(default)
        for group in SECTIONS[some]
        for option, default in own(group).items()
    }
    found = {
        cells[0].strip("`-").replace("-", "_"): cells[2].strip("`")
        for section in some
        for cells in rows(dict(sections(PAGE))[section])
        if cells[0].startswith("`--")
    }
    assert found == expected


def test_every_exclusion_is_explained_and_each_of_its_options_has_a_line() -> None:
    """A row of the page's table has all of them; the refusal of each is frozen."""
    table = [cells[0] for cells in rows(dict(sections(PAGE))["What is rejected"])]
    lines = REFUSED.read_text("utf-8").splitlines()
    for settings, options, _ in (*config.EXCLUSIONS, FROZEN):
        ours, others = ([flag(next(iter(each))) for each in settings], [*map(flag, options)])
        assert any(all(each in row for each in (*ours, *others)) for row in table), ours
        for some, behind in ((ours, others), (others, ours)):
            for one in some:
                assert any(one in x and other in x for x in lines for other in behind), one


def test_a_table_of_flags_lists_every_value_and_the_default() -> None:
    """Also where the README has the main ones, and the page of the optimizer its own."""
    found = {name(page): list(tables(page)) for page in PAGES}
    assert {name for name, lines in found.items() if lines} == {
        "README.md",
        "docs/flags.md",
        "docs/optimizer.md",
    }
    for options, cells in itertools.chain.from_iterable(found.values()):
        assert all(f"`{value}`" in cells[1] for o in options for value in VALUES.get(o, ()))
        if len(cells) == 3:
            defaults = [part.strip(" `") for part in re.split(r"[,;]", cells[2])]
            for option, default in zip(options, defaults):
                assert default in DEFAULTS.get(option, {default}) | {""}, option


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_flag_of_a_mechanism_that_a_page_names_exists(page: Path) -> None:
    named = set(FLAG.findall(page.read_text(encoding="utf-8")))
    ours = {flag for flag in named if MECHANISM.match(flag)}
    assert not ours - {option.replace("_", "-") for option in DEFAULTS}
