"""Tests over sentences, seeds and test sets: closed forms, enumeration, drawn experiments."""

from itertools import product
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from scipy.stats import ttest_ind

from capsnmt.evaluation.metrics import measure_of
from capsnmt.evaluation.planning import power
from capsnmt.evaluation.scores import CENTRED, RANDOMIZATION
from capsnmt.evaluation.significance import difference_of
from tests.evaluation import rates
from tests.evaluation.conftest import Evaluate
from tests.evaluation.outputs import write_lines

METRICS = {
    "bleu": BLEU(references=[["a"]]),
    "unsmoothed": BLEU(references=[["a"]], smooth_method="none"),
    "chrf": CHRF(references=[["a"]]),
    "chrf++": CHRF(word_order=2, references=[["a"]]),
    "ter": TER(references=[["a"]]),
}


@pytest.mark.parametrize("name", METRICS)
def test_scores_of_many_resamples_are_those_of_sacrebleu(name: str) -> None:
    metric = METRICS[name]
    size, random = len(metric._extract_corpus_statistics(["a"], None)[0]), np.random.default_rng(1)
    sums = random.integers(0, 9, size=(2000, size)) * random.integers(2, size=(2000, size))
    if "bleu" in name or name == "unsmoothed":  # n-grams that match are some of those there are
        sums[:, 2:6] = np.minimum(sums[:, 2:6], sums[:, 6:])
    ours = measure_of(metric).scores(sums.astype(float))
    theirs = [metric._compute_score_from_stats(row.tolist()).score for row in sums]
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_variance_is_that_of_all_resamples_of_two_seeds_and_three_sentences() -> None:
    """Of the bootstrap that draws seeds, then sentences, enumerated; see ``difference_of``."""
    random = np.random.default_rng(3)
    ours, theirs = random.standard_normal((2, 2, 3))
    theirs += np.array([4, -2, 1])
    draws = [np.bincount(x, minlength=3) / 3 for x in product(range(3), repeat=3)]
    seeds = [(x.mean(1), x @ np.array(draws).T) for x in (ours, theirs)]
    found = difference_of(*seeds, segments=3)
    values, both = [], 0.0
    for weights, one, other in product(draws, *[list(product(range(2), repeat=2))] * 2):
        means = [x[list(chosen)].mean(0) @ weights for x, chosen in ((ours, one), (theirs, other))]
        values.append(means[0] - means[1])
    for x in (ours, theirs):
        for each in x - x.mean(0):
            both += np.var([each @ weights for weights in draws]) / 2
    # n of n seeds are drawn: a half of their variance, and of the luck that is in both
    of_seeds, of_sentences = (found[f"variance_over_{name}"] for name in ("seeds", "sentences"))
    assert of_sentences > 0
    # a variance over resamples of three sentences is two thirds of that of sentences
    assert np.var(values) == pytest.approx(of_sentences * 2 / 3 + both + (of_seeds + both) / 2)
    uncertain = sum((np.var(scores, ddof=1) / 2) ** 2 for scores, _ in seeds)
    satterthwaite = (of_seeds + of_sentences) ** 2 / (uncertain + of_sentences**2 / 2)
    assert found["freedom"] == pytest.approx(satterthwaite)
    assert np.mean(found["interval"]) == pytest.approx(ours.mean() - theirs.mean())


def test_over_seeds_alone_it_is_welchs_test() -> None:
    random = np.random.default_rng(4)
    ours, theirs = random.standard_normal(3), 1 + 2 * random.standard_normal(5)
    found = difference_of(*((each, np.zeros((len(each), 9))) for each in (ours, theirs)))
    expected = ttest_ind(ours, theirs, equal_var=False)
    for kind in ("", "welch_"):  # no sentences are known here
        assert found[f"{kind}p_value"] == pytest.approx(expected.pvalue)
        assert found[f"{kind}interval"] == pytest.approx(tuple(expected.confidence_interval()))


@pytest.mark.parametrize(
    ("experiments", "tolerance"), [(200, 0.04), pytest.param(3000, 0.01, marks=pytest.mark.nightly)]
)
def test_differences_that_are_none_are_found_in_one_of_twenty_experiments(
    experiments: int, tolerance: float
) -> None:
    """With three seeds Welch's test, and so ours, finds less."""
    random = np.random.default_rng(6)
    real = [random.gamma(2, size=(900, 1)) @ [[1, 0]] + [0, 1] for _ in range(2)]

    def mean(sums: np.ndarray) -> np.ndarray:
        return sums[..., 0] / sums[..., 1]

    for method in (RANDOMIZATION, CENTRED):
        found = rates.rate(rates.sentences(real, rates.paired(mean, method)), experiments)
        assert found == pytest.approx(0.05, abs=tolerance), method
    for source in rates.SOURCES:
        for seeds, least in ((3, 0.015), (6, 0.0)):
            found = rates.rate(rates.seeds_and_sentences(seeds, source, "p_value"), experiments)
            assert 0.05 - tolerance - least <= found <= 0.05 + tolerance, (source, seeds)


@pytest.mark.parametrize("experiments", [200, pytest.param(3000, marks=pytest.mark.nightly)])
def test_the_planned_power_is_that_of_drawn_experiments(experiments: int) -> None:
    random, tolerance = np.random.default_rng(7), 0.02 + 2 * (0.25 / experiments) ** 0.5
    for source, seeds in (("seeds", 4), ("sentences", 5)):
        of_seed, of_sentence, luck = rates.SOURCES[source]
        planned = power(2.0, (seeds, seeds), (of_seed**2 + luck**2) / 2, of_sentence**2)
        drawn = [rates.trained(random, seeds, source, 2.0)[0].p_value for _ in range(experiments)]
        found = np.mean([p is not None and p < 0.05 for p in drawn])
        assert 0.1 < found < 0.95
        assert planned == pytest.approx(found, abs=tolerance), source


WORDS = ["the", "house", "is", "red", "and", "small", "but", "nice", "today"]


@pytest.fixture
def systems(tmp_path: Path) -> Dict[str, str]:
    """Outputs of two systems with three seeds and their references, on the test sets A and B."""
    random, paths = np.random.default_rng(8), {}
    for test_set in "AB":
        reference = [" ".join(random.permutation(WORDS)) for _ in range(60)]
        paths["reference"] = str(write_lines(tmp_path / f"r.{test_set}", reference))
        for system, wrong in (("base", 0.3), ("good", 0.1)):
            for seed in (1, 2, 3):
                lines = [
                    " ".join(word if random.random() > wrong else "x" for word in line.split())
                    for line in reference
                ]
                write_lines(tmp_path / f"{system}-{seed}.{test_set}", lines)
    paths["reference"] = str(tmp_path / "r.{set}")
    for system in ("base", "good"):
        for seed in (1, 2, 3):
            paths[f"{system}-{seed}"] = str(tmp_path / f"{system}-{seed}.{{set}}")
        paths[system] = ",".join(paths[f"{system}-{seed}"] for seed in (1, 2, 3))
    return paths


def given(systems: Dict[str, str], good: str, base: str, *flags: str) -> List[str]:
    """The arguments that compare two systems, in BLEU and chrF."""
    of_text = ("--input", "plain", "--target-lang", "en", "--metrics", "bleu,chrf")
    both = (f"good={good}", "--baseline", f"base={base}", "--reference", systems["reference"])
    return [*both, *of_text, *flags]


def one(arguments: List[str], test_set: str = "A") -> List[str]:
    """The same for one test set."""
    return [each.replace("{set}", test_set) for each in arguments]


def test_seeds_sentences_and_test_sets_are_one_comparison(
    systems: Dict[str, str], evaluate: Evaluate
) -> None:
    arguments = given(systems, systems["good"], systems["base"], "--samples", "100")
    all_sets = evaluate(*arguments, "--test-sets", "A,B")
    alone = {name: evaluate(*one(arguments, name)) for name in "AB"}
    first = all_sets["test_sets"]["A"]
    assert [x["scores"].keys() for x in first["systems"][0]["outputs"]] == [{*SCORES}] * 3
    for one_set, of_all in zip(alone.values(), all_sets["test_sets"].values()):
        assert scores_in(of_all) == scores_in(one_set)
        for ours, theirs in zip(of_all["comparisons"], one_set["comparisons"]):  # other draws
            assert ours["p_value"] == pytest.approx(theirs["p_value"], abs=0.01)
            assert ours["welch_p_value"] == theirs["welch_p_value"]
    for metric in ("bleu", "chrf"):
        parts: List[Any] = [
            [x for x in each["comparisons"] if x["metric"] == metric] for each in alone.values()
        ]
        (whole,) = (x for x in all_sets["comparisons"] if x["metric"] == metric)
        assert whole["seeds"] == [3, 3]
        assert whole["delta"] == pytest.approx(np.mean([x["delta"] for (x,) in parts]))
        assert whole["p_value"] < 0.01
        assert whole["interval"][0] > 0


SCORES = ("bleu", "chrf", "multi-bleu")


def scores_in(document: Any) -> List[Any]:
    found = [output["scores"] for system in document["systems"] for output in system["outputs"]]
    return [{metric: score["score"] for metric, score in each.items()} for each in found]


def test_what_seeds_cannot_say_is_said(
    systems: Dict[str, str], tmp_path: Path, evaluate: Evaluate, capsys: pytest.CaptureFixture
) -> None:
    two = ",".join(systems[f"base-{seed}"] for seed in (1, 2))
    same = [str(write_lines(tmp_path / f"same-{n}", ["a b c d"] * 60)) for n in (1, 2, 3, 4)]
    single = write_lines(tmp_path / "single", ["a house"])
    cases: List[Any] = [
        (one(given(systems, systems["good-1"], systems["base-1"])), "nothing of other seeds"),
        (one(given(systems, systems["good"], two)), "fewer than 5 seeds"),
        (one(given(systems, systems["good"], systems["base-1"])), "one output against several"),
        (one(given(systems, ",".join(same[:2]), ",".join(same[2:]))), "have the same score"),
        (one(given(systems, systems["good"], ",".join([*same, two]))), "fewer than 5"),
        (
            [f"a={single}", "--baseline", f"b={single}", "--reference", single, "--input", "plain"],
            "",
        ),
    ]
    for arguments, line in cases:
        found = evaluate(*arguments, "--samples", "50")["comparisons"]
        assert line in capsys.readouterr().out
        sides = found[0]["seeds"]
        known = min(sides) == max(sides) == 1 or "fewer" in line
        assert all(("p_value" in each) == known for each in found), line


def test_seeds_of_different_scores_have_no_p_on_few_sentences_and_that_is_why(
    tmp_path: Path, evaluate: Evaluate, capsys: pytest.CaptureFixture
) -> None:
    """They were said to have the same score."""
    texts = ["a house is red", "a house is old", "the house is old", "a red house"]
    files = [str(write_lines(tmp_path / str(n), [text])) for n, text in enumerate(texts)]
    good, base = (f"{name}={','.join(x)}" for name, x in (("good", files[:2]), ("base", files[2:])))
    evaluate(good, "--baseline", base, "--reference", files[0], "--input", "plain")
    printed = capsys.readouterr().out
    assert "nothing is known of other sentences, and several seeds have no p\n" in printed
    assert "the same score" not in printed


def test_the_planner_says_how_many_seeds_and_what_these_could_show(
    systems: Dict[str, str], evaluate: Evaluate, capsys: pytest.CaptureFixture
) -> None:
    arguments = one(given(systems, systems["good"], systems["base"]))
    (plan,) = evaluate(*arguments, "--plan", "0.5")["plans"]
    printed = capsys.readouterr().out
    powers = [plan["power"][key] for key in sorted(plan["power"], key=int)]
    assert plan["deviation"] > 0
    assert np.diff(powers).min() > -0.02
    assert f"{plan['shown']:.2f} BLEU" in printed
    again = evaluate(*arguments, "--plan", str(plan["shown"]))["plans"][0]
    assert again["power"]["3"] == pytest.approx(0.8, abs=0.01)
    assert again["needed"] == 3


def test_marks_are_of_all_tests_of_a_table(systems: Dict[str, str], evaluate: Evaluate) -> None:
    arguments = one(given(systems, systems["good"], systems["base"]))
    others = [f"x{n}={systems['base'].replace('{set}', 'A')}" for n in range(3)]
    alone, among = (evaluate(*words)["comparisons"] for words in (arguments, [*others, *arguments]))
    (own,) = (x for x in alone if x["metric"] == "bleu")
    (found,) = (x for x in among if (x["metric"], x["system"]) == ("bleu", "good"))
    larger = max(own["p_value"], own["sentences_p_value"])
    assert own["p_value"] == found["p_value"]
    assert own["corrected_p_value"] == larger
    assert found["corrected_p_value"] == pytest.approx(min(1, 4 * larger))
