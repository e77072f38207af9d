"""A report that cannot be written is one line, and leaves no file."""

import functools
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from capsnmt.report.__main__ import main
from tests.report.finished_runs import (
    OF_BASELINE,
    TRANSLATIONS,
    add_seeds,
    edit,
    page,
    put,
    runs,
    write_result,
)


def text(file: str, content: str) -> Callable[[Path], Any]:
    return lambda run: (run / file).write_text(content)


SCORES = ("test", "systems", -1, "outputs", 0, "scores")
BLEU_OF_BASELINE = ("scores.json", *OF_BASELINE, "bleu", "score")
RECORDS = ("scores.json", "config.json", "training.json", "train.log", "generate-test.txt")
DAMAGES = [
    *((lambda run, name=name: (run / name).unlink(), name) for name in RECORDS),
    (put("config.json", "seed", value="one"), "config.json: seed is 'one'; expected `int`"),
    (put("config.json", "row", value="x"), "lacks the scores of x"),
    (put("training.json", "parameters"), "has no number of parameters"),
    (text("scores.json", "{}"), "scores.json: the file is {}; expected"),
    (put("scores.json", *SCORES, value={}), "lacks the score bleu"),
    (
        lambda run: edit(run / "scores.json", lambda s: s.update(more=s["test"])),
        "has the test sets",
    ),
    (put("scores.json", "test", "checksums", "reference", value="x"), "reference of test x, but"),
    (text("generate-test.txt", "H-0\t-1\tx\n"), "has 1 segments"),
    # the new scores of the baseline stood beside differences to its old ones
    (
        lambda run: put(*BLEU_OF_BASELINE, value=50.0)(run.parents[1] / "baseline/seed-1"),
        "of baseline on test, which is 50.00; score both alike: delete scores-test.json of both",
    ),
]


@pytest.fixture
def report(output: Path, refused: Callable[..., str]) -> Callable[..., str]:
    """Report on some runs, which is refused; return the line."""
    return functools.partial(refused, main, "--output", output / "report")


@pytest.mark.parametrize(("harm", "expected"), DAMAGES, ids=[words for _, words in DAMAGES])
def test_a_broken_run_is_one_line_that_names_it_and_nothing_is_written(
    harm: Callable[[Path], Any], expected: str, output: Path, report: Callable[..., str]
) -> None:
    harm(output / "em_routing/seed-1")
    error = report(*runs(output))
    assert expected in error
    assert "em_routing" in error


def test_a_damaged_classifier_is_one_line(output: Path, report: Callable[..., str]) -> None:
    write_result(output / "logic", "both", 1, 50.0)
    path = output / "logic/both/seed-1/results.json"
    edit(path, lambda result: result["splits"].update(valid=result["splits"].pop("test")))
    assert "lacks the split 'test'" in report(output / "logic")
    edit(path, lambda result: result["splits"].update(test={"examples": 100}))
    assert "results.json: splits.test: object missing required field `accuracy`" in report(
        output / "logic"
    )


def test_data_that_are_missing_or_of_another_test_set_are_one_line(
    output: Path, report: Callable[..., str]
) -> None:
    for row in TRANSLATIONS:
        put("config.json", "data", value=str(output / "data"))(output / row / "seed-1")
    manifest = output / "data/manifest.json"
    content = manifest.read_bytes()
    manifest.unlink()
    said = report(*runs(output))
    assert f"{manifest.parent} has no prepared data (manifest.json); make it by caps" in said
    assert "or link it if it was moved" in said
    manifest.write_bytes(content)
    source, reference = (output / "data" / "raw" / f"test.{side}" for side in ("en", "de"))
    text, known = (path.read_text("utf-8") for path in (source, reference))
    source.write_text(f"{text}more\n", "utf-8")
    other = f"{source} has 31 segments, but the reference {reference} has 30"
    assert other in report(output / "baseline")
    source.write_text(text, "utf-8")
    reference.write_text(known.replace("schön", "alt"), "utf-8")
    other = f"baseline/seed-1 was scored with another reference than {reference}"
    assert other in report(output / "baseline")
    reference.write_text(known, "utf-8")
    for path in (output / "em_routing/seed-1/generate-test.txt", reference, source):
        path.unlink()
        fault = f"{path} is not there, of which samples are shown; restore it, or give --samples 0"
        assert fault in report(*runs(output))


def test_seeds_with_other_settings_have_no_mean(output: Path, report: Callable[..., str]) -> None:
    folder = add_seeds(output, "baseline", [20.0, 22.0], [1, 1])[1]
    put("config.json", "settings", "train", "lr", value=0.5)(folder)
    assert f"{folder} has train.lr 0.5, but" in report(output / "baseline")


@pytest.mark.parametrize("task", [None, "WC"])
def test_classifiers_are_different_runs_and_their_seeds_have_one_setting(
    output: Path, report: Callable[..., str], task: Optional[str]
) -> None:
    for seed in (1, 2):
        write_result(output / "classifiers", "both", seed, 50.0, task=task)
    second = output / "classifiers/both" / (task or "") / "seed-2"
    assert f"{second} is given twice" in report(second, output / "classifiers")
    put("config.json", "settings", "train", "validate-interval", value=2)(second)  # another best
    assert f"{second} has train.validate-interval 2, but" in report(output / "classifiers")
    put("config.json", "settings", "train", "lr", value=0.5)(second)
    assert f"{second} has train.lr 0.5, but" in report(output / "classifiers")


def test_the_tasks_of_a_row_have_one_setting_and_one_encoder(
    output: Path, report: Callable[..., str]
) -> None:
    """Otherwise the average of a column would be of two systems."""
    folder = output / "classifiers"
    for task in ("SentLen", "WC"):
        write_result(folder, "both", 1, 50.0, task=task)
    one, other = (folder / "both" / task / "seed-1" for task in ("SentLen", "WC"))
    for run, task in ((one, "SentLen"), (other, "WC")):
        put("config.json", "task", value=task)(run)
        put("training.json", "vocabulary", value={f"{task}.txt": task})(run)
    for file, keys, value, key in (
        ("config.json", ("settings", "train", "lr"), 0.5, "train.lr"),
        ("training.json", ("data", "--probe-checkpoint"), "1", "data: --probe-checkpoint"),
    ):
        put("training.json", "data", value={"--probe-checkpoint": "0"})(one)
        put("training.json", "data", value={"--probe-checkpoint": "0"})(other)
        put(file, *keys, value=value)(other)
        assert f"{other} has {key} {value}, but {one}, of the same row," in report(folder)
        put("config.json", "settings", "train", value={"task": "probing"})(other)
    put("training.json", "data", value={"--probe-checkpoint": "0"})(other)
    assert "| Surface | Ave. |" in page([folder])
