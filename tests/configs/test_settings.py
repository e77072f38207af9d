"""The settings are those that the papers report, the same on each dataset of a paper."""

import ast
import functools
import math
from typing import Any, Dict

import pytest
import torch
from fairseq import options
from fairseq.optim import build_optimizer
from fairseq.optim.lr_scheduler import build_lr_scheduler

from capsnmt.configurations import load
from capsnmt.corpora.recipe import load_recipe
from capsnmt.launch.flags import argv
from tests.support import PLUGIN, REPO

EN_DE, ZH_EN, ES_EN, EN_VI = "wmt14_en_de", "wmt17_zh_en", "iwslt14_es_en", "iwslt15_en_vi"
SETTINGS = [
    *((EN_DE, name) for name in ("base", "big", "ampomah2020", "duan2020", "duan2020_big")),
    *((ZH_EN, name) for name in ("base", "big", "duan2020", "duan2020_big")),
    *((dataset, "base") for dataset in (ES_EN, EN_VI)),
]
every_setting = pytest.mark.parametrize(("dataset", "name"), SETTINGS)


@functools.cache
def settings(dataset: str, name: str) -> Dict[str, Any]:
    return load(REPO / "configs" / dataset / f"{name}.yaml")


def of_paper(found: Dict[str, Any]) -> Dict[str, Any]:
    """The settings that do not depend on the dataset."""
    shared = {"share-all-embeddings", "share-decoder-input-output-embed"}
    train = {key: value for key, value in found["train"].items() if key not in shared}
    others = {key: found[key] for key in found if key not in ("dataset", "data", "score")}
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


@every_setting
def test_the_settings_of_a_dataset_are_those_of_its_recipe(dataset: str, name: str) -> None:
    found = settings(dataset, name)
    source, target = dataset.split("_")[1:]
    languages = {"source-lang": source, "target-lang": target}
    assert found["dataset"] == dataset
    assert found["data"] == {"recipe": dataset, **languages, "test-sets": {"test": "test"}}
    recipe = load_recipe(dataset)
    assert recipe.languages == (source, target)
    assert recipe.subsets.get("test") == "test"
    # output is detokenised where the recipe tokenised it
    assert found["score"]["detokenize"] == recipe.tokenisers[target]


VASWANI = {"adam-eps": 1e-9, "label-smoothing": 0.1}
COSINE = {"lr-scheduler": "cosine", "max-source-positions": 201, "max-target-positions": 201}
IWSLT = {**COSINE, "max-source-positions": 151, "max-target-positions": 151}
# paper -> settings, tokens of an update, flags of the training and of the search
PRINTED: Dict[str, Any] = {
    "Li et al. 2021, 4.1.1": (
        (EN_DE, "base"),
        8 * 4096,
        {"dropout": 0.1, "adam-betas": "(0.9, 0.98)", "warmup-updates": 4000},
        {},
    ),
    "Li et al. 2021, 4.1.1, big": ((EN_DE, "big"), 8 * 4096, {"dropout": 0.1}, {}),
    "Ampomah et al. 2020, 5.3, WMT": (
        (EN_DE, "ampomah2020"),
        4960,
        {"max-update": 160000, **COSINE},
        {"beam": 4, "lenpen": 0.6},
    ),
    "Ampomah et al. 2020, 5.3, IWSLT": (
        (ES_EN, "base"),
        2048,
        {"max-update": 200000, **IWSLT},
        {"beam": 6, "lenpen": 1.1},
    ),
    "Duan et al. 2020, 4.1": ((EN_DE, "duan2020"), 2 * 12 * 2048, {"dropout": 0.1}, {}),
    "Duan et al. 2020, 4.1, big": ((EN_DE, "duan2020_big"), 3 * 24 * 1024, {"dropout": 0.3}, {}),
}


@pytest.mark.parametrize("paper", PRINTED)
def test_settings_are_those_the_paper_prints(paper: str) -> None:
    where, tokens, train, generate = PRINTED[paper]
    found = settings(*where)
    assert found["batch"]["tokens-per-update"] == tokens
    for key, value in {**VASWANI, **train}.items():
        assert found["train"][key] == value or float(found["train"][key]) == value, key
    assert {key: found["generate"][key] for key in generate} == generate
    assert "average" not in found


def scheduler(found: Dict[str, Any], *more: str) -> Any:
    """fairseq's scheduler, with an optimizer of one weight."""
    flags = ["data", "--user-dir", PLUGIN, "--arch", found["arch"]]
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [*flags, *argv(found["train"]), *more])
    optimizer = build_optimizer(args, [torch.nn.Parameter(torch.zeros(1))])
    return build_lr_scheduler(args, optimizer), args


@every_setting
def test_the_learning_rate_is_vaswanis_or_one_cosine_cycle(dataset: str, name: str) -> None:
    """It does not change when the training is stopped early."""
    schedule, args = scheduler(settings(dataset, name))
    early, _ = scheduler(settings(dataset, name), "--max-update", "50000")
    warmup, last, width = args.warmup_updates, args.max_update, args.encoder_embed_dim

    def vaswani(step: int) -> float:
        return width**-0.5 * min(max(step, 1e-9) ** -0.5, step * warmup**-1.5)

    def cosine(step: int) -> float:
        part = max(0, step - warmup) / (last - warmup)
        if step < warmup:
            return 1e-3 * step / warmup
        return 1e-6 + (1e-3 - 1e-6) * (1 + math.cos(math.pi * part)) / 2

    wanted = {"inverse_sqrt": vaswani, "cosine": cosine}[args.lr_scheduler]
    # The last update but one: fairseq's next cycle begins with the last.
    for step in (0, 1, warmup // 2, warmup, 20000, 49999, (warmup + last) // 2, last - 1):
        rate = schedule.step_update(step)
        assert rate == pytest.approx(wanted(step), rel=1e-3, abs=1e-9)
        if step < 50000:
            assert early.step_update(step) == rate


@every_setting
def test_a_limit_on_training_sentences_stops_no_validation_and_loses_no_translation(
    dataset: str, name: str
) -> None:
    found = settings(dataset, name)
    limited = {
        key.replace("-", "_")
        for key in found["train"]
        if key.endswith(("source-positions", "target-positions"))
    }
    overrides = ast.literal_eval(found["generate"].get("model-overrides", "{}"))
    assert set(overrides) == limited
    assert all(value >= 1024 for value in overrides.values())
    skips = bool(found["train"].get("skip-invalid-size-inputs-valid-test"))
    assert skips == bool(limited)
