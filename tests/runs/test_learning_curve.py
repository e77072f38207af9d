"""Learning curves show the updates of the final model, whatever interrupted the training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsnmt.cli import ConfigurationError
from capsnmt.runs.learning_curve import parse_train_log, read_learning_curve

SAVED_EVERY = 3  # entries between two checkpoints


def entry(update: int) -> List[str]:
    """What fairseq logs at an update: the training loss and, where it saves, validation."""
    train = {"epoch": 1, "loss": f"{100 - update}", "num_updates": f"{update}"}
    # two seconds an update
    lines = [json.dumps({**train, "wps": "450.5", "wpb": "901", "wall": "0"})]
    if update % SAVED_EVERY == 0:
        valid = {"epoch": 1, "valid_loss": f"{200 - update}", "valid_num_updates": f"{update}"}
        lines.append(json.dumps(valid))
    return lines


def trained(start: int, end: int) -> List[str]:
    """The log of one process that makes the updates after ``start`` up to ``end``."""
    return [line for update in range(start + 1, end + 1) for line in entry(update)]


@given(st.lists(st.integers(1, 30), max_size=6))
def test_a_training_killed_anywhere_has_the_curve_of_an_uninterrupted_one(kills: List[int]) -> None:
    lines: List[str] = []
    start, end = 0, 30
    for kill in kills:
        lines += trained(start, max(start, kill))
        start = max(start, kill) // SAVED_EVERY * SAVED_EVERY
    curve = parse_train_log(lines + trained(start, end))
    assert curve == parse_train_log(trained(0, end))
    assert curve.training_seconds == pytest.approx(2 * end)
    assert curve.updates == end


def test_the_peak_memory_is_that_of_the_largest_process() -> None:
    log = ['{"loss": "9", "num_updates": "10"}', '{"peak_memory_gib": 1.25}']
    assert parse_train_log(log).peak_memory == 1.25
    assert parse_train_log([*log, *trained(10, 12), '{"peak_memory_gib": 1.0}']).peak_memory == 1.25
    assert parse_train_log(log[:1]).peak_memory is None


def test_an_incomplete_line_is_left_out() -> None:
    lines = trained(0, 4)
    lines.insert(2, lines[1][:17] + lines[2])
    curve = parse_train_log(lines)
    assert sorted(curve.train) == [1, 2, 3, 4]


def test_a_log_without_validation_or_times_has_a_curve_without_them() -> None:
    curve = parse_train_log(['{"loss": "9", "num_updates": "10"}'])
    assert (curve.valid, curve.training_seconds, curve.updates) == ({}, None, 10)
    assert curve.tokens_per_second is None


@pytest.mark.parametrize("loss", ["nan", "inf", "null", "x", None])
def test_a_loss_that_is_not_a_finite_number_is_not_a_point(loss: object) -> None:
    lines = [json.dumps({"loss": loss, "num_updates": "20"}), *trained(0, 2)]
    assert sorted(parse_train_log(lines).train) == [1, 2]


def test_the_mean_of_an_epoch_is_a_point_where_the_training_has_no_other() -> None:
    numbers = {"train_loss": "3", "train_num_updates": "2", "train_wps": "5", "train_wpb": "10"}
    log = ['{"valid_loss": "4", "valid_num_updates": "2"}', json.dumps(numbers)]
    assert parse_train_log([*trained(0, 2), log[1]]) == parse_train_log(trained(0, 2))
    curve = parse_train_log(log)
    assert (curve.train, curve.valid, curve.training_seconds) == ({2: 3.0}, {2: 4.0}, 4.0)


@pytest.mark.parametrize("content", ["", "\n", "no json\n", '{"valid_loss": "1"}\n', "[1]\n"])
def test_a_log_without_training_loss_is_one_error_that_names_it(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "train.log"
    path.write_text(content, "utf-8")
    with pytest.raises(ConfigurationError, match="no training loss") as error:
        read_learning_curve(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
