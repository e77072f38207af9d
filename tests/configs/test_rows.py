"""Every row of the papers' tables has its configuration, and no configuration is anything else."""

from __future__ import annotations

import argparse
import functools
import shlex
from typing import Any, Dict, Set

import fairseq.models
import pytest
import torch

from capsnmt.experiment import config
from capsnmt.experiment.config import Experiment, load
from capsnmt.experiment.flags import (
    argv,
    check_arch,
    check_average,
    check_generate,
    check_owned,
    check_train,
)
from scripts.parameter_formulas import SUFFIXES
from scripts.rows import PLAIN, ROWS, Row
from tests.configs import published
from tests.configs.published import BASELINES, DATASETS, PRINTED
from tests.support import PLUGIN, REPO, TASK, parse

CROSS_ENTROPY = "--criterion label_smoothed_cross_entropy"
EVERY = [
    (dataset, path.stem)
    for dataset in DATASETS
    for path in sorted((REPO / "configs" / dataset).glob("*.yaml"))
]


@functools.cache
def experiment(dataset: str, name: str) -> Experiment:
    return load(REPO / "configs" / dataset / f"{name}.yaml")


@functools.cache
def arguments(dataset: str, name: str) -> Dict[str, Any]:
    """What fairseq-train makes of a configuration."""
    chosen = experiment(dataset, name)
    return vars(parse(chosen["arch"], *argv(chosen["train"])))


@functools.cache
def changes(dataset: str, name: str, settings: str) -> Dict[str, Any]:
    """What fairseq-train is told by one configuration and not by the other."""
    return _changes(arguments(dataset, name), arguments(dataset, settings))


@functools.cache
def flags(command: str) -> Dict[str, Any]:
    """What fairseq-train makes of ``--arch ARCH`` and further flags."""
    _, arch, *others = shlex.split(command)
    return vars(parse(arch, *others))


def flags_of(row: Row, size: str) -> Dict[str, Any]:
    """What a row's own flags change in the Transformer of a size."""
    plain = PLAIN.format(size=SUFFIXES[size])
    loss = row.criterion or CROSS_ENTROPY
    return _changes(flags(f"{row.model(size)} {loss}"), flags(f"{plain} {CROSS_ENTROPY}"))


def _changes(row: Dict[str, Any], base: Dict[str, Any]) -> Dict[str, Any]:
    return {key: value for key, value in row.items() if base.get(key, "unset") != value}


def configurations(dataset: str, name: str) -> Set[str]:
    """The configurations of a row: named after its paper, with its flags and no others."""
    row = ROWS[name]
    settings, wanted = published.settings(row, dataset), flags_of(row, published.size(row, dataset))
    return {
        path.stem
        for path in (REPO / "configs" / dataset).glob(f"{row.paper}_*.yaml")
        if experiment(dataset, path.stem)["arch"] == experiment(dataset, settings)["arch"]
        and changes(dataset, path.stem, settings) == wanted
    }


@pytest.mark.parametrize(("dataset", "row"), PRINTED)
def test_a_row_has_one_configuration_with_exactly_its_flags(dataset: str, row: str) -> None:
    assert len(configurations(dataset, row)) == 1


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_configuration_is_a_row_or_a_baseline_or_settings(dataset: str) -> None:
    printed = [row for where, row in PRINTED if where == dataset]
    settings = {published.settings(ROWS[row], dataset) for row in printed}
    rows = set().union(*(configurations(dataset, row) for row in printed))
    accounted = {*rows, *settings, *BASELINES[dataset], "base"}
    assert accounted == {name for where, name in EVERY if where == dataset}


@pytest.mark.parametrize(
    ("dataset", "name"), [(dataset, name) for dataset in DATASETS for name in BASELINES[dataset]]
)
def test_a_baseline_is_the_transformer_with_its_papers_settings(dataset: str, name: str) -> None:
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    wanted = heads if name.endswith("8_heads") else {}
    assert changes(dataset, name, BASELINES[dataset][name]) == wanted


@pytest.mark.parametrize(("dataset", "row"), PRINTED)
def test_a_row_changes_nothing_but_training_flags_in_its_settings(dataset: str, row: str) -> None:
    settings = experiment(dataset, published.settings(ROWS[row], dataset)).settings
    (name,) = configurations(dataset, row)
    assert {**experiment(dataset, name).settings, "train": settings["train"]} == settings


@pytest.mark.parametrize(("dataset", "name"), EVERY)
def test_a_configuration_is_complete_and_has_no_flag_unknown_to_fairseq(
    dataset: str, name: str
) -> None:
    chosen = experiment(dataset, name)
    config.require_complete(chosen)
    check_owned(chosen)
    check_arch(chosen)
    check_average(chosen)
    data = ["data", "--user-dir", PLUGIN]
    check_train(chosen, [*data, "--arch", chosen["arch"], *argv(chosen["train"])])
    check_generate(chosen, [*data, "--path", "model.pt", *argv(chosen["generate"])])


@functools.cache
def parameters(dataset: str, name: str) -> int:
    with torch.device("meta"):
        model = fairseq.models.build_model(argparse.Namespace(**arguments(dataset, name)), TASK)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("row", [row.name for row in ROWS.values() if row.paper])
def test_the_model_of_a_configuration_has_the_rows_parameters(row: str) -> None:
    """On one data set: they do not differ in models, as the tests above hold."""
    dataset = published.datasets(ROWS[row])[0]
    (name,) = configurations(dataset, row)
    settings = published.settings(ROWS[row], dataset)
    assert parameters(dataset, name) - parameters(dataset, settings) == ROWS[row].extra


@pytest.mark.parametrize("row", published.IWSLT_TOO)
def test_the_layer_aggregations_have_more_parameters_in_the_small_size_too(row: str) -> None:
    (name,) = configurations(published.ES_EN, row)
    assert parameters(published.ES_EN, name) > parameters(published.ES_EN, "baseline")
