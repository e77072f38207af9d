"""Every row is its paper's settings plus its own flags, with the reported parameters."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, Dict

import fairseq.models
import pytest
import torch

from capsnmt.configurations import load
from capsnmt.launch.flags import argv
from capsnmt.modules.layer_aggregation import OVERFLOW_FP16
from scripts.paper_rows import (
    PLAIN,
    SUFFIXES,
    PaperRow,
    load_rows,
    relative_speed,
    reported_difference,
)
from scripts.parameter_formulas import extra_parameters
from tests.support import REPO, TASK, parse

ROWS = load_rows()
DATASETS = sorted({row.dataset for row in ROWS.values()})
COMPARED = [key for key, row in ROWS.items() if row.reported.baseline]
# The same model and loss on other data has the same parameters.
DISTINCT = list({ROWS[key].command(): key for key in reversed(COMPARED)}.values())


def path_of(key: str) -> Path:
    return REPO / "configs" / f"{key}.yaml"


@functools.cache
def settings(key: str) -> Dict[str, Any]:
    return load(path_of(key))


def settings_of(row: PaperRow) -> str:
    """The settings a row is trained with: its paper's own, or those after Vaswani et al."""
    size = "_big" if row.size == "big" else ""
    own = f"{row.dataset}/{row.paper}{size}"
    return own if path_of(own).exists() else f"{row.dataset}/{'big' if size else 'base'}"


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_row_is_its_papers_settings_with_its_own_flags(dataset: str) -> None:
    for key, row in ROWS.items():
        if row.dataset == dataset:
            shared = settings(settings_of(row))
            start = {} if row.init_from is None else {"init-from": row.init_from}
            if row.flags.get("layer-aggregation") in OVERFLOW_FP16:
                start["precision"] = "auto"
            expected = {**shared, **start, "train": {**shared["train"], **row.flags}}
            assert settings(key) == expected, key


@pytest.mark.parametrize("dataset", DATASETS)
def test_no_two_rows_of_a_dataset_are_the_same_training(dataset: str) -> None:
    rows = [key for key, row in ROWS.items() if row.dataset == dataset]
    assert len({json.dumps(settings(key), sort_keys=True) for key in rows}) == len(rows)


def test_a_baseline_is_the_transformer() -> None:
    own: Dict[str, Dict[str, Any]] = {
        "8_heads": {"attention-heads": 8},
        "4_layers": {"layers": 4},
        "post_norm": {"normalize-before": False},
    }
    for key, row in ROWS.items():
        assert row.arch == PLAIN + SUFFIXES[row.size], key
        if row.reported.baseline is None:
            both = next((own[suffix] for suffix in own if key.endswith(suffix)), {})
            sides = ("encoder", "decoder")
            assert row.flags == {f"{s}-{name}": n for s in sides for name, n in both.items()}, key


@pytest.mark.parametrize("key", COMPARED)
def test_a_row_is_compared_with_the_transformer_of_the_same_training(key: str) -> None:
    row, baseline = ROWS[key], ROWS[key].baseline
    for paper, reported in row.papers.items():
        compared = ROWS[f"{row.dataset}/{reported.baseline or row.name}"]
        assert compared.papers[paper].baseline is None
    assert settings_of(row) == settings_of(dataclasses.replace(baseline, papers=row.papers))
    assert baseline.flags.items() <= row.flags.items()
    assert row.flags != baseline.flags


@functools.cache
def parameters(key: str) -> int:
    """The parameters of a configuration's model, which takes no memory."""
    chosen = settings(key)
    args = parse(chosen["arch"], *argv(chosen["train"]))
    with torch.device("meta"):
        model = fairseq.models.build_model(args, TASK)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("key", DISTINCT)
def test_the_model_of_a_row_adds_exactly_the_parameters_of_its_formula(key: str) -> None:
    row = ROWS[key]
    assert parameters(key) - parameters(row.baseline.key) == extra_parameters(row)


def test_a_count_is_the_printed_one_to_its_rounding_or_has_a_note() -> None:
    """A row cannot silently join the exceptions."""
    exceptions = {}
    for key, row in ROWS.items():
        printed, extra = reported_difference(row), extra_parameters(row)
        if printed and abs(extra - printed.parameters) > printed.rounding * (1 + 1e-9):
            exceptions[key] = (printed.text, round(extra / 1e6, 1))
    assert {key for key, row in ROWS.items() if row.reported.note} == {*exceptions}
    assert exceptions == {
        "wmt14_en_de/dou2019_linear": ("+14.7M", 3.1),
        "wmt14_en_de/dou2019_em_routing": ("+56.8M", 56.6),
        "wmt14_en_de/ampomah2020_wider": ("61.2M to 86.5M", 25.2),
        "wmt14_en_de/li2021_aggregation_big_8_heads": ("264M to 288M", 16.8),
        "wmt14_en_de/li2021_both_big_8_heads": ("264M to 288M", 16.8),
    }


def test_a_printed_speed_is_compared_with_the_baseline_of_the_same_paper() -> None:
    """Three papers print three speeds of one baseline."""

    def speed(key: str, phase: str = "training") -> Any:
        return relative_speed(ROWS[key], phase)

    assert speed("wmt14_en_de/li2019_em_enc_self") == 1.20 / 1.92
    assert speed("wmt14_en_de/li2019_em_enc_self", "decoding") == 1.65 / 1.67
    assert speed("wmt14_en_de/dou2019_em_routing") == 1.10 / 1.79
    assert speed("wmt17_zh_en/li2021_output") == 1.15 / 1.21
    assert speed("wmt17_zh_en/li2019_effective") is None
    assert speed("wmt14_en_de/baseline") is None
