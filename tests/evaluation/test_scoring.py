"""Scores and tests of significance agree with sacreBLEU's command line, to its last digit."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, List, Optional

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.metrics import METRICS
from capsnmt.evaluation.scoring import build_metrics, score_system
from capsnmt.evaluation.settings import BOOTSTRAP, RANDOMIZATION, Significance
from capsnmt.evaluation.significance import SEED_VARIABLE, paired_test
from tests.commands import succeed
from tests.evaluation.outputs import write_lines

DIGITS = 12


def sacrebleu(folder: Path, texts: Dict[str, List[str]], *flags: object) -> str:
    """What ``sacrebleu reference -i sys1 sys2`` prints."""
    files = {name: write_lines(folder / name, lines) for name, lines in texts.items()}
    return succeed(
        "sacrebleu",
        *(files["reference"], "-i", files["sys1"], files["sys2"], "-w", DIGITS, "--no-color"),
        *("-f", "latex", *flags),
    )


def flags(metrics: List[str]) -> List[object]:
    """The flags for some metrics; chrF++ is a setting of sacreBLEU's chrF."""
    if metrics == ["chrf++"]:
        return ["-m", "chrf", "--chrf-word-order", 2]
    return ["-m", *metrics]


def cells(table: str, system: str) -> List[List[str]]:
    """For each metric of a row of sacreBLEU's table: score, mean, confidence interval, p-value."""
    row = next(line for line in table.splitlines() if system in line and "&" in line)
    return [re.findall(r"\d+\.\d+", cell) for cell in row.split("&")[1:]]


def printed(value: Optional[float], digits: int = DIGITS) -> str:
    return f"{value:.{digits}f}"


@pytest.mark.parametrize(
    ("segments", "metrics", "method", "samples"),
    [
        (60, ["bleu", "chrf", "ter"], BOOTSTRAP, 200),
        (60, ["chrf++"], BOOTSTRAP, 200),
        (60, ["bleu", "chrf", "ter"], RANDOMIZATION, 200),
        # the same with the numbers of a real test set
        pytest.param(None, ["bleu"], BOOTSTRAP, 1000, marks=pytest.mark.nightly),
        pytest.param(None, ["bleu"], RANDOMIZATION, 1000, marks=pytest.mark.nightly),
    ],
)
def test_scores_and_significance_are_those_of_the_sacrebleu_command(
    ted: Dict[str, List[str]],
    tmp_path: Path,
    segments: Optional[int],
    metrics: List[str],
    method: str,
    samples: int,
) -> None:
    texts = {name: lines[:segments] for name, lines in ted.items()}
    flag = {BOOTSTRAP: "--paired-bs", RANDOMIZATION: "--paired-ar"}[method]
    table = sacrebleu(tmp_path, texts, *flags(metrics), flag, f"{flag}-n", samples)
    built = build_metrics("en", texts["reference"])
    scores = paired_test(
        [(name, texts[name]) for name in ("sys1", "sys2")],
        {key: built[key] for key in metrics},
        Significance(method, samples),
    )
    for name, ours in zip(("sys1", "sys2"), scores):
        assert len(ours) == len(metrics)
        for score, theirs in zip(ours.values(), cells(table, name)):
            intervals = (score.mean, score.ci) if method == BOOTSTRAP else ()
            expected = [printed(x) for x in (score.score, *intervals)]
            if name == "sys2":
                expected.append(printed(score.p_value, 4))
            assert theirs == expected
            assert score.signature in table


@pytest.mark.parametrize("names", [[m for m in METRICS if m != "chrf++"], ["chrf++"]])
def test_scores_without_a_test_are_those_of_the_sacrebleu_command(
    ted: Dict[str, List[str]], tmp_path: Path, names: List[str]
) -> None:
    texts = {name: lines[:40] for name, lines in ted.items()}
    table = sacrebleu(tmp_path, texts, *flags(names))
    built = build_metrics(None, texts["reference"])
    metrics = {name: built[name] for name in names}
    for name in ("sys1", "sys2"):
        ours = score_system(metrics, texts[name])
        assert cells(table, name) == [[printed(score.score)] for score in ours.values()]
        assert all(score.signature in table for score in ours.values())
        assert all(score.p_value is None for score in ours.values())


def test_the_test_of_systems_scores_as_scoring_alone(ted: Dict[str, List[str]]) -> None:
    texts = {name: lines[:20] for name, lines in ted.items()}
    metrics = build_metrics("en", texts["reference"])
    pair = [("a", texts["sys1"]), ("b", texts["sys2"])]
    tested = paired_test(pair, metrics, Significance(samples=2))
    for name, scores in zip(("sys1", "sys2"), tested):
        alone = score_system(metrics, texts[name])
        assert {k: v.score for k, v in scores.items()} == {k: v.score for k, v in alone.items()}


def bleu_p_value(
    texts: Dict[str, List[str]], system: str, seed: int = 12345, method: str = BOOTSTRAP
) -> float:
    metrics = {"bleu": build_metrics("en", texts["reference"])["bleu"]}
    pair = [("sys1", texts["sys1"]), (system, texts[system])]
    value = paired_test(pair, metrics, Significance(method, 50, seed))[1]["bleu"].p_value
    assert value is not None
    return value


@pytest.mark.parametrize("method", [BOOTSTRAP, RANDOMIZATION])
def test_the_seed_decides_and_the_environment_does_not(
    ted: Dict[str, List[str]], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {name: lines[:60] for name, lines in ted.items()}
    values = [bleu_p_value(texts, "sys2", seed, method) for seed in (1, 2, 3, 4)]
    assert len(set(values)) > 1
    monkeypatch.setenv(SEED_VARIABLE, "999")
    assert bleu_p_value(texts, "sys2", 1, method) == values[0]
    assert os.environ[SEED_VARIABLE] == "999"
    monkeypatch.delenv(SEED_VARIABLE)
    assert bleu_p_value(texts, "sys2", 1, method) == values[0]
    assert SEED_VARIABLE not in os.environ


def test_few_resamples_bound_the_p_value_and_a_similar_system_does_not_reach_it(
    ted: Dict[str, List[str]],
) -> None:
    texts = {name: lines[:60] for name, lines in ted.items()}
    texts["like"] = [*texts["sys1"][:58], *texts["sys2"][58:]]
    assert bleu_p_value(texts, "reference") == 1 / 51
    assert bleu_p_value(texts, "like") > 0.1


def test_no_seed_is_refused(ted: Dict[str, List[str]]) -> None:
    texts = {name: lines[:2] for name, lines in ted.items()}
    with pytest.raises(ValueError, match="seed 0"):
        bleu_p_value(texts, "sys2", seed=0)


@pytest.mark.parametrize(
    ("lang", "bleu", "ter"),
    [
        (None, "tok:13a", "norm:no|punct:yes|asian:no"),
        ("de", "tok:13a", "norm:no|punct:yes|asian:no"),
        ("zh_CN", "tok:zh", "norm:yes|punct:yes|asian:yes"),
    ],
)
def test_tokenisers_follow_the_target_language(lang: Optional[str], bleu: str, ter: str) -> None:
    scores = score_system(build_metrics(lang, ["我们去公园。", "a b"]), ["我们去公园。", "a c"])
    assert bleu in scores["bleu"].signature
    assert ter in scores["ter"].signature


def test_chinese_ter_counts_characters() -> None:
    # one of six characters is wrong; by words the entire sentence would be wrong
    scores = score_system(build_metrics("zh", ["我们去公园。"]), ["我们去学园。"])
    assert scores["ter"].score == pytest.approx(100 / 6)


def test_a_missing_tokeniser_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'sacrebleu\[ja\]'$"):
        build_metrics("ja", ["私は学生です。"])
