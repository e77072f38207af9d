"""Every number is sacreBLEU's command's, multi-bleu.perl's, or follows its definition."""

import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from scipy.stats import binom

from capsnmt.evaluation.metrics import multi_bleu, split_compounds
from capsnmt.evaluation.scores import SAMPLES
from tests.commands import succeed
from tests.evaluation.conftest import Evaluate, outputs, scores
from tests.evaluation.outputs import write_lines

DIGITS = 12
METRIC_SETS = [["bleu", "chrf", "ter"], ["chrf++"]]
Texts = Dict[str, List[str]]


def sacrebleu(files: Dict[str, Path], metrics: List[str], *flags: object) -> str:
    """What ``sacrebleu reference -i sys1 sys2`` prints, its signatures without the test."""
    # chrF++ is a setting of sacreBLEU's chrF
    chosen = ["chrf", "--chrf-word-order", 2] if metrics == ["chrf++"] else metrics
    references = [path for name, path in files.items() if name in ("reference", "second")]
    table = succeed(
        *("sacrebleu", *references, "-i", files["sys1"], files["sys2"], "-m", *chosen),
        *("-w", DIGITS, "--no-color", "-f", "latex", *flags),
    )
    return re.sub(r"(bs|ar):\d+\|seed:\d+\|", "", table)


def cells(table: str, system: str) -> List[List[str]]:
    """For each metric of a row of sacreBLEU's table: score, mean, confidence interval, p-value."""
    row = next(line for line in table.splitlines() if system in line and "&" in line)
    return [re.findall(r"\d+\.\d+", cell) for cell in row.split("&")[1:]]


def write(folder: Path, texts: Texts, segments: Optional[int]) -> Dict[str, Path]:
    return {name: write_lines(folder / name, lines[:segments]) for name, lines in texts.items()}


def plain(files: Dict[str, Path], *flags: object) -> Sequence[object]:
    systems = f"sys1={files['sys1']}", f"sys2={files['sys2']}"
    return [*systems, "--input", "plain", "--reference", files["reference"], *flags]


@pytest.mark.parametrize(
    ("references", "segments", "metric_sets", "method", "samples"),
    [
        (2, 60, METRIC_SETS, "bs", 200),
        (2, 60, METRIC_SETS[:1], "ar", 200),
        (1, 40, METRIC_SETS, None, None),
        # the same with the numbers of a real test set
        pytest.param(1, None, [["bleu"]], "bs", 1000, marks=pytest.mark.nightly),
        pytest.param(1, None, [["bleu"]], "ar", 1000, marks=pytest.mark.nightly),
    ],
)
def test_scores_and_significance_are_those_of_the_sacrebleu_command(
    ted: Texts,
    tmp_path: Path,
    evaluate: Evaluate,
    references: int,
    segments: Optional[int],
    metric_sets: List[List[str]],
    method: Optional[str],
    samples: Optional[int],
) -> None:
    """Several references are files for both; sys1 is one of sys2 and of another."""
    texts = {name: ted[name] for name in ("reference", "sys1", "sys2")}
    if references == 2:
        sys2 = [*ted["sys1"][:30], *ted["sys2"][30:]]
        texts.update(second=ted["sys1"], sys1=ted["sys2"], sys2=sys2)
    files = write(tmp_path, texts, segments)
    ours: List[object] = ["--target-lang", "en"]
    ours += ["--reference", files["second"]] if references == 2 else []
    theirs: List[object] = []
    if method is not None:
        ours += ["--baseline", "sys1", "--samples", samples]
        theirs += [f"--paired-{method}", f"--paired-{method}-n", samples]
    ours += ["--significance", "bootstrap"] if method == "bs" else []
    found = outputs(evaluate(*plain(files, *ours)))
    for metrics in metric_sets:
        table = sacrebleu(files, metrics, *theirs)
        for name, output in found.items():
            for metric, printed in zip(metrics, cells(table, name)):
                score = output["scores"][metric]
                if method == "bs":
                    printed.pop(1)  # the mean over the resamples
                expected = [f"{score['score']:.{DIGITS}f}"]
                if method == "bs":  # sacreBLEU's resamples are in fp32
                    assert score["ci"] == pytest.approx(float(printed.pop(1)), rel=1e-5)
                if method is not None and name == "sys2":
                    if metric == "ter" and method == "ar":
                        # sacreBLEU counts larger differences only, and edits of few sentences tie
                        assert float(printed[-1]) <= round(score["p_value"], 4) < 0.5
                        expected.append(printed[-1])
                    else:
                        expected.append(f"{score['p_value']:.4f}")
                assert printed == expected
                assert ("p_value" in score) == (method is not None and name == "sys2")
                assert score["signature"] in table
                assert score["signature"].startswith(f"nrefs:{references}|")
    assert found["sys2"]["scores"]["multi-bleu"]["signature"].startswith(f"nrefs:{references}|")


def corpus_bleu(hypotheses: List[str], reference: List[str]) -> float:
    return BLEU().corpus_score(hypotheses, [reference]).score


def test_each_length_scores_as_its_segments_alone(
    ted: Texts, tmp_path: Path, evaluate: Evaluate
) -> None:
    """A length that two buckets name belongs to the second."""
    few = [*range(60), 132, 726, 1724]
    ted = {name: [lines[i] for i in few] for name, lines in ted.items()}
    lengths = [len(line.split()) for line in ted["source"]]
    assert {10, 20, 30, 40, 50} <= {*lengths}
    chosen = {
        name: [i for i, length in enumerate(lengths) if low <= length < high]
        for name, low, high in (
            *(("<10", 0, 10), ("10-20", 10, 20), ("20-30", 20, 30)),
            *(("30-40", 30, 40), ("40-50", 40, 50), (">50", 50, 10**6)),
        )
    }
    files = write(tmp_path, ted, None)
    document = evaluate(*plain(files, "--source", files["source"]))
    assert document["length_unit"] == f"the tokens of {files['source']}"
    assert document["segments_by_length"] == {name: len(found) for name, found in chosen.items()}
    bleu = outputs(document)["sys1"]["bleu_by_length"]
    assert bleu.keys() == chosen.keys()
    for name, numbers in chosen.items():
        ours, theirs = ([ted[text][i] for i in numbers] for text in ("sys1", "reference"))
        assert bleu[name] == pytest.approx(corpus_bleu(ours, theirs))


def test_the_sign_test_is_that_of_collins_et_al_by_complete_corpora(
    ted: Texts, tmp_path: Path, evaluate: Evaluate
) -> None:
    size = 20
    base, other, reference = (ted[name][:size] for name in ("sys1", "sys2", "reference"))
    before = corpus_bleu(base, reference)
    signs = []
    for i in range(size):
        after = corpus_bleu([*base[:i], other[i], *base[i + 1 :]], reference)
        tie = after == pytest.approx(before, abs=1e-12)
        signs.append(0 if tie else 1 if after > before else -1)
    better, worse, ties = map(signs.count, (1, -1, 0))
    p_value = min(1, 2 * binom.cdf(min(better, worse), better + worse, 0.5))
    files = write(tmp_path, ted, size)
    flags = ["--baseline", "sys1", "--samples", 2]
    found = outputs(evaluate(f"same={files['sys1']}", *plain(files, *flags)))
    counts = {"better": better, "worse": worse, "ties": ties}
    assert found["sys2"]["sign_test"] == {**counts, "p_value": pytest.approx(p_value)}
    nothing = {"better": 0, "worse": 0, "ties": size, "p_value": 1.0}
    assert found["same"]["sign_test"] == nothing
    assert "sign_test" not in found["sys1"]


# Printed by Moses' multi-bleu.perl (31473d8) on shared/data/significance, with %.4f in place of
# %.2f; the second after perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g' on both sides.
GOLDEN = {"sys1": (22.4364, 22.4586), "sys2": (24.0389, 23.9754)}


@pytest.mark.parametrize("system", GOLDEN)
def test_real_outputs_have_the_scores_of_multi_bleu_perl(ted: Texts, system: str) -> None:
    one, other = ted[f"{system}.tokens"], ted["reference.tokens"]
    plain = multi_bleu(one, [other], "as-given").score
    split = multi_bleu([*map(split_compounds, one)], [[*map(split_compounds, other)]], "").score
    assert (round(plain, 4), round(split, 4)) == GOLDEN[system]
    # not smoothed: without a match of four words the score is zero
    assert multi_bleu(["a b c d"], [["a b x d"]], "").score == 0


def test_moses_tokenises_both_sides_and_a_wrong_half_of_a_compound_costs_less(
    tmp_path: Path, evaluate: Evaluate
) -> None:
    """Which languages have these scores, and their signatures: tests/frozen/golden."""
    text = ["So ist der E-Mail-Verkehr in der Tat, sagt er.", "Don't re-do it, it is done."]
    reference = write_lines(tmp_path / "reference", text)
    wrong = write_lines(tmp_path / "wrong", [line.replace("Mail", "Brief") for line in text])
    flags = ["--input", "plain", "--reference", reference, "--target-lang", "de"]
    document = evaluate(f"right={reference}", f"wrong={wrong}", *flags)
    whole, split = (scores(document, kind) for kind in ("multi-bleu", "compound-split"))
    assert whole["right"] == split["right"] == pytest.approx(100)
    assert split["wrong"] > whole["wrong"]


SEGMENTS = 12
GOOD = [0.9, 0.8, 0.7, 0.95, 0.85, 0.75, 0.91, 0.81, 0.71, 0.96, 0.86, 0.5]
BASE = [0.6, 0.9, 0.65, 0.9, 0.8, 0.7, 0.95, 0.7, 0.6, 0.9, 0.8, 0.55]


def p_value(method: str, samples: int, seed: int) -> float:
    """The paired test of a mean, from its definition."""
    difference, random = np.array(GOOD) - np.array(BASE), np.random.default_rng(seed)
    real = abs(difference.mean())
    if method == "approximate-randomization":
        exchanged = random.integers(2, size=(samples, SEGMENTS), dtype=bool)
        found = np.where(exchanged, -difference, difference).mean(1)
        larger = abs(found) >= real - 1e-9  # ties count
    else:
        drawn = random.choice(SEGMENTS, size=(samples, SEGMENTS), replace=True)
        found = difference[drawn].mean(1)
        larger = abs(found) - abs(found).mean() > real
        if method == "centred-bootstrap":
            larger = abs(found - found.mean()) >= real - 1e-9
    return (sum(larger) + 1) / (samples + 1)


@pytest.mark.parametrize("method", SAMPLES)
def test_means_of_segments_are_tested_as_defined(
    files: Dict[str, str],
    tmp_path: Path,
    evaluate: Evaluate,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The seed decides, and the environment does not."""
    monkeypatch.setenv("SACREBLEU_SEED", "999")
    good, base = (write_lines(tmp_path / str(i), map(str, x)) for i, x in enumerate((GOOD, BASE)))
    found: Dict[str, Any] = outputs(
        evaluate(
            *(f"good={files['good']}", "--baseline", f"base={files['half']}"),
            *("--reference", files["reference"]),
            *("--segment-scores", "COMET", f"good={good}", f"base={base}"),
            *("--significance", method, "--samples", 500, "--seed", 7),
        )
    )
    ours, theirs = (found[name]["scores"]["COMET"] for name in ("good", "base"))
    assert ours["score"] == pytest.approx(np.mean(GOOD))
    assert theirs["score"] == pytest.approx(np.mean(BASE))
    assert ours["p_value"] == pytest.approx(p_value(method, 500, 7))
