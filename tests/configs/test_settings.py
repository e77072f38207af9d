"""The settings are those that the papers print, the same on each dataset of a paper."""

from __future__ import annotations

import ast
import functools
import math
from typing import Any, Dict

import pytest
import torch
from capsnmt.launch.config import Experiment, load
from fairseq import options
from fairseq.optim import build_optimizer
from fairseq.optim.lr_scheduler import build_lr_scheduler

from capsnmt.corpora.binarise import fairseq_subsets
from capsnmt.corpora.recipe import load_recipe
from capsnmt.launch.flags import argv
from tests.support import PLUGIN, REPO

EN_DE, ZH_EN, ES_EN, EN_VI = "wmt14_en_de", "wmt17_zh_en", "iwslt14_es_en", "iwslt15_en_vi"
DATASETS = (EN_DE, ZH_EN, ES_EN, EN_VI)

SETTINGS = [
    *((EN_DE, name) for name in ("base", "big", "ampomah2020", "duan2020", "duan2020_big")),
    *((ZH_EN, name) for name in ("base", "big", "duan2020", "duan2020_big")),
    *((dataset, "base") for dataset in (ES_EN, EN_VI)),
]


@functools.cache
def settings(dataset: str, name: str) -> Experiment:
    return load(REPO / "configs" / dataset / f"{name}.yaml")


def of_paper(experiment: Experiment) -> Dict[str, Any]:
    """The settings that do not depend on the dataset."""
    shared = {"share-all-embeddings", "share-decoder-input-output-embed"}
    train = {key: value for key, value in experiment["train"].items() if key not in shared}
    of_data = ("dataset", "data", "score")
    others = {key: value for key, value in experiment.settings.items() if key not in of_data}
    return {**others, "train": train}


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        *((EN_DE, ZH_EN, name) for name in ("base", "big", "duan2020", "duan2020_big")),
        (ES_EN, EN_VI, "base"),
    ],
)
def test_a_paper_has_the_same_settings_on_each_dataset(one: str, other: str, name: str) -> None:
    assert of_paper(settings(one, name)) == of_paper(settings(other, name))


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_settings_of_a_dataset_name_its_data(dataset: str) -> None:
    source, target = dataset.split("_")[1:]
    for _, name in (found for found in SETTINGS if found[0] == dataset):
        found = settings(dataset, name)
        assert found["dataset"] == dataset
        assert found["data"] == {
            "recipe": dataset,
            "source-lang": source,
            "target-lang": target,
            "test-sets": {"test": "test"},
        }


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_recipe_of_a_dataset_makes_its_languages_and_test_sets(dataset: str) -> None:
    data = settings(dataset, "base")["data"]
    recipe = load_recipe(data["recipe"])
    assert (recipe.source, recipe.target) == (data["source-lang"], data["target-lang"])
    subsets = fairseq_subsets(recipe.splits)
    assert {name: subsets.get(name) for name in data["test-sets"]} == data["test-sets"]


@pytest.mark.parametrize("dataset", DATASETS)
def test_output_is_detokenised_where_the_recipe_tokenised_it(dataset: str) -> None:
    found = settings(dataset, "base")
    tokeniser = load_recipe(found["data.recipe"]).tokenisers[found["data.target-lang"]]
    assert found["score.detokenize"] == tokeniser


EIGHT_GPUS = {"batch.tokens-per-update": 8 * 4096, "train.dropout": 0.1}
SEARCH_OF_WMT = {"generate.beam": 4, "generate.lenpen": 0.6}
SEARCH_OF_IWSLT = {"generate.beam": 6, "generate.lenpen": 1.1}
PRINTED = {
    "Li et al. 2021, 4.1.1": (
        (EN_DE, "base"),
        {**EIGHT_GPUS, "train.adam-betas": "(0.9, 0.98)", "train.warmup-updates": 4000},
    ),
    "Li et al. 2021, 4.1.1, big": ((EN_DE, "big"), EIGHT_GPUS),
    "Ampomah et al. 2020, 5.3, WMT": (
        (EN_DE, "ampomah2020"),
        {
            "batch.tokens-per-update": 4960,
            "train.max-update": 160000,
            "train.max-source-positions": 201,
            "train.max-target-positions": 201,
            "train.lr-scheduler": "cosine",
            **SEARCH_OF_WMT,
        },
    ),
    "Ampomah et al. 2020, 5.3, IWSLT": (
        (ES_EN, "base"),
        {
            "batch.tokens-per-update": 2048,
            "train.max-update": 200000,
            "train.max-source-positions": 151,
            "train.max-target-positions": 151,
            "train.lr-scheduler": "cosine",
            **SEARCH_OF_IWSLT,
        },
    ),
    "Duan et al. 2020, 4.1": (
        (EN_DE, "duan2020"),
        {"batch.tokens-per-update": 2 * 12 * 2048, "train.dropout": 0.1},
    ),
    "Duan et al. 2020, 4.1, big": (
        (EN_DE, "duan2020_big"),
        {"batch.tokens-per-update": 3 * 24 * 1024, "train.dropout": 0.3},
    ),
}


@pytest.mark.parametrize("paper", PRINTED)
def test_settings_are_those_the_paper_prints(paper: str) -> None:
    where, printed = PRINTED[paper]
    found = settings(*where)
    assert {key: found[key] for key in printed} == printed
    # Vaswani et al. and Li et al. 2021 print these; the other papers follow them.
    assert float(found["train.adam-eps"]) == 1e-9
    assert found["train.label-smoothing"] == 0.1
    assert found["average"] is None


def scheduler(experiment: Experiment, *more: str) -> Any:
    """fairseq's scheduler, with an optimizer of one weight."""
    flags = ["data", "--user-dir", PLUGIN, "--arch", experiment["arch"]]
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [*flags, *argv(experiment["train"]), *more])
    optimizer = build_optimizer(args, [torch.nn.Parameter(torch.zeros(1))])
    return build_lr_scheduler(args, optimizer), args


@pytest.mark.parametrize(("dataset", "name"), SETTINGS)
def test_the_learning_rate_is_vaswanis_or_one_cosine_cycle(dataset: str, name: str) -> None:
    found = settings(dataset, name)
    schedule, args = scheduler(found)
    warmup, last, width = args.warmup_updates, args.max_update, args.encoder_embed_dim
    steps = [0, 1, warmup // 2, warmup, 2 * warmup, (warmup + last) // 2, last]

    def vaswani(step: int) -> float:
        return width**-0.5 * min(max(step, 1e-9) ** -0.5, step * warmup**-1.5)

    def cosine(step: int) -> float:
        part = max(0, step - warmup) / (last - warmup)
        if step < warmup:
            return 1e-3 * step / warmup
        return 1e-6 + (1e-3 - 1e-6) * (1 + math.cos(math.pi * part)) / 2

    wanted = {"inverse_sqrt": vaswani, "cosine": cosine}[args.lr_scheduler]
    # The last update but one: fairseq's next cycle begins with the last.
    steps[-1] -= 1
    rates = [schedule.step_update(step) for step in steps]
    assert rates == pytest.approx([wanted(step) for step in steps], rel=1e-3, abs=1e-9)


@pytest.mark.parametrize(("dataset", "name"), SETTINGS)
def test_stopping_early_does_not_change_the_learning_rate(dataset: str, name: str) -> None:
    found = settings(dataset, name)
    full, early = scheduler(found)[0], scheduler(found, "--max-update", "50000")[0]
    for step in (100, 20000, 49999):
        assert early.step_update(step) == full.step_update(step)


@pytest.mark.parametrize(("dataset", "name"), SETTINGS)
def test_a_limit_on_training_sentences_stops_no_validation_and_loses_no_translation(
    dataset: str, name: str
) -> None:
    found = settings(dataset, name)
    limited = {
        key.replace("-", "_")
        for key in found["train"]
        if key.endswith(("source-positions", "target-positions"))
    }
    overrides = ast.literal_eval(found["generate.model-overrides"] or "{}")
    assert set(overrides) == limited
    assert all(value >= 1024 for value in overrides.values())
    assert bool(found["train.skip-invalid-size-inputs-valid-test"]) == bool(limited)
