"""``capsnmt-evaluate``: its choices, its tables and its JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from capsnmt import records
from capsnmt.evaluation.__main__ import main
from capsnmt.evaluation.scores import METRICS, Evaluation
from tests.evaluation.conftest import Evaluate, outputs, scores
from tests.evaluation.outputs import TOKENS, generated, write_lines

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"


def rows(table: str) -> Dict[str, List[str]]:
    """The first cell of each line of the first table -> the others."""
    lines = [line.rsplit(maxsplit=len(METRICS)) for line in table.split("\n\n")[1].splitlines()]
    return {name: cells for name, *cells in lines}


def test_tokens_are_scored_as_text_against_the_raw_reference(
    files: Dict[str, str], evaluate: Evaluate
) -> None:
    document = evaluate(f"good={files['good']}", "--reference", files["reference"])
    for metric, perfect in (("bleu", 100), ("chrf", 100), ("chrf++", 100), ("ter", 0)):
        assert scores(document, metric) == {"good": pytest.approx(perfect)}
    assert (document["reference"], document["segments"]) == (files["reference"], 12)
    assert document["target_lang"] == "en"
    assert document["versions"].keys() == {"capsnmt", "python", "sacrebleu", "sacremoses"}


def test_generated_and_plain_files_of_one_system_have_the_same_scores(
    files: Dict[str, str], evaluate: Evaluate
) -> None:
    reference = ["--reference", files["reference"]]
    generate = outputs(evaluate(f"x={files['half']}", *reference))["x"]
    plain = outputs(evaluate(f"x={files['plain']}", *reference, "--input", "plain"))["x"]
    for metric in METRICS:
        assert generate["scores"][metric] == plain["scores"][metric]
        assert 0 < plain["scores"][metric]["score"] < 100


def test_bpe_and_tokens_are_kept_on_request(files: Dict[str, str], evaluate: Evaluate) -> None:
    flags = [f"x={files['good']}", "--reference", files["reference"], "--detokenize", "none"]
    tokens, pieces = evaluate(*flags), evaluate(*flags, "--remove-bpe", "none")
    assert scores(pieces)["x"] < scores(tokens)["x"] < 100


def test_the_target_lines_are_the_reference_and_this_is_said(
    files: Dict[str, str], evaluate: Evaluate, capsys: pytest.CaptureFixture
) -> None:
    document = evaluate(f"x={files['good']}")
    assert "not the raw reference" in capsys.readouterr().err
    assert document["reference"] is None
    assert scores(document) == {"x": pytest.approx(100)}


WARNINGS: Dict[str, Any] = {
    "no --target-lang": ["{unlogged}"],
    "Moses has no rules for 'vi'": ["{good}", "--target-lang", "vi"],
    "2 references contain <<unk>>": ["{unknown}"],
    "2 of the 12 translations of": ["{empty}", "--reference", "{reference}"],
    "2 of the 3 segments of the reference": ["{unknown}", "--reference", "{blanks}"],
    "b equals a in every sentence: ignore its p-value": [
        *("a={good}", "b={good}", "--baseline", "a", "--samples", "5"),
    ],
    "S- lines differ": ["a={good}", "b={other}", "--reference", "{reference}"],
}


@pytest.mark.parametrize("warning", WARNINGS)
def test_what_makes_a_score_doubtful_is_said(
    files: Dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture, warning: str
) -> None:
    more = {
        "unknown": generated(["a house"] * 3, ["a <<unk>> house", "a house", "<<unk>> <<unk>>"]),
        "empty": generated([*TOKENS[:-2], "", ""]),
        "blanks": ["a house", "", " "],
        "other": [line.replace("\tx", "\tx@@ y") for line in generated(TOKENS)],
    }
    paths = {name: str(write_lines(tmp_path / name, lines)) for name, lines in more.items()}
    arguments = [argument.format(**{**files, **paths}) for argument in WARNINGS[warning]]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert warning in printed.err
    if warning == "S- lines differ":
        assert "by source length" not in printed.out
    assert main([files["good"], "--reference", files["reference"]]) == 0
    assert warning not in capsys.readouterr().err


@pytest.mark.parametrize("baseline", ["base", "{half}", "base={half}"])
def test_a_baseline_is_a_name_or_a_file_and_comes_first(
    files: Dict[str, str], evaluate: Evaluate, baseline: str
) -> None:
    systems = [f"good={files['good']}", f"base={files['half']}"]
    flags = ["--reference", files["reference"], "--samples", "20", "--seed", "7"]
    document = evaluate(*systems, "--baseline", baseline.format(**files), *flags)
    test = {"baseline": "base", "method": "bootstrap", "samples": 20, "seed": 7}
    assert document["test"] == test
    assert [system["name"] for system in document["systems"]] == ["base", "good"]
    base, good = (output["scores"]["bleu"] for output in outputs(document).values())
    assert base.keys() == {"score", "signature", "ci"}
    assert good["delta"] == good["score"] - base["score"]
    assert good["p_value"] == pytest.approx(1 / 21)
    # another file that was not given yet
    alone = evaluate(systems[0], "--baseline", systems[1], *flags)
    assert outputs(alone) == outputs(document)


def test_the_table_and_the_json_have_the_same_numbers(
    files: Dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = tmp_path / "scores.json"
    systems = [f"base={files['half']}", f"good={files['good']}", "--reference", files["reference"]]
    for _ in range(2):  # an older file is replaced
        arguments = [*systems, "--baseline", "base", "--samples", "20", "--target-lang", "de"]
        assert main([*arguments, "--json", str(path)]) == 0
        table = capsys.readouterr().out
    evaluation = records.read(path, Evaluation)
    found = rows(table)
    for system in evaluation.systems:
        (output,) = system.outputs
        own = [output.scores[metric] for metric in METRICS]
        assert found[system.name] == [f"{score.score:.2f}" for score in own]
        assert found[f"{system.name} ± 95%"] == [f"{score.ci:.2f}" for score in own]
        for kind in ("multi-bleu", "compound-split"):
            assert f"{kind}: multi-bleu.perl" in table
            assert f"{output.scores[kind].score:.2f}" in table
        assert all(score.signature in table for score in output.scores.values())
        assert all(f"{bleu:.2f}" in table for bleu in output.bleu_by_length.values())
    (good,) = evaluation.system("good").outputs
    assert found["good Δ"] == [f"{good.scores[metric].delta:+.2f}" for metric in METRICS]
    assert found["good p"] == [f"{good.scores[metric].p_value:.4f}" for metric in METRICS]
    assert good.sign_test is not None
    sign = good.sign_test
    counts = map(str, (sign.better, sign.worse, sign.ties))
    assert table.splitlines()[-1].split() == ["good", *counts, f"{sign.p_value:.4f}"]
    assert "20 resamples, seed 12345, against base" in table
    assert SIGNATURE in table
    assert "mteval-v13a.pl -c" in table
    randomized = ["--significance", "approximate-randomization"]
    assert main([*arguments, *randomized]) == 0
    table = capsys.readouterr().out
    assert "paired approximate randomization (Riezler and Maxwell 2005), 20 trials" in table
    assert "95%" not in table


def test_json_alone_replaces_the_table(
    files: Dict[str, str], evaluate: Evaluate, capsys: pytest.CaptureFixture
) -> None:
    document = evaluate(files["good"])
    capsys.readouterr()
    assert main([files["good"], "--json", "-"]) == 0
    assert records.parse_yaml(capsys.readouterr().out, "stdout") == document


def test_several_outputs_are_one_system_with_mean_and_deviation(
    files: Dict[str, str], evaluate: Evaluate, capsys: pytest.CaptureFixture
) -> None:
    flags = ["--reference", files["reference"], "--samples", "20"]
    paths = [files[name] for name in ("half", "good")]
    alone = [scores(evaluate(f"x={path}", *flags[:2]))["x"] for path in paths]
    capsys.readouterr()
    against = ["--baseline", f"b={files['third']}"]
    base, system = evaluate(f"x={','.join(paths)}", *flags, *against)["systems"]
    assert [output["path"] for output in system["outputs"]] == paths
    assert [output["scores"]["bleu"]["score"] for output in system["outputs"]] == alone
    found = rows(capsys.readouterr().out)
    mean, third = sum(alone) / 2, base["outputs"][0]["scores"]["bleu"]["score"]
    expected = {"x": f"{mean:.2f}", "x ± std": f"{abs(alone[0] - alone[1]) / 2**0.5:.2f}"}
    expected.update({"x Δ": f"{mean - third:+.2f}", "x 1": f"{alone[0]:.2f}"})
    expected["x 2"] = f"{alone[1]:.2f}"
    assert {name: found[name][0] for name in expected} == expected


@pytest.mark.parametrize("baseline", [["third", "half"], ["half"]])
def test_each_seed_is_tested_against_its_own_seed_or_the_only_one_of_the_baseline(
    files: Dict[str, str], evaluate: Evaluate, baseline: List[str]
) -> None:
    flags = ["--reference", files["reference"], "--samples", "20"]
    against = ",".join(files[name] for name in baseline)
    seeds = evaluate(f"x={files['good']},{files['third']}", "--baseline", f"b={against}", *flags)
    for number, name in enumerate(("good", "third")):
        base = files[baseline[number % len(baseline)]]
        alone = evaluate(f"x={files[name]}", "--baseline", f"b={base}", *flags)
        assert seeds["systems"][1]["outputs"][number] == outputs(alone)["x"]


def test_with_a_tokenised_reference_the_tokens_are_those_that_were_decoded(
    tmp_path: Path, evaluate: Evaluate
) -> None:
    line = "Don &apos;t re @-@ do it , please ."
    output = write_lines(tmp_path / "output", generated([line], ["something else"]))
    tokens = write_lines(tmp_path / "tokens", [line])
    found = outputs(evaluate(f"x={output}", "--tokenized-reference", tokens))["x"]["scores"]
    assert found["multi-bleu"]["score"] == pytest.approx(100)
    assert found["multi-bleu"]["signature"].endswith("|text:as-given")
    assert found["bleu"]["score"] == 0


def test_a_missing_tokeniser_is_one_line(
    files: Dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    assert main([files["good"], "--target-lang", "ja"]) == 2
    assert capsys.readouterr().err.endswith("pip install 'sacrebleu[ja]'\n")


def test_a_missing_library_is_one_line_that_names_it(
    files: Dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    assert main([files["good"], "--reference", files["reference"]]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "error: sacremoses is not installed: pip install 'capsnmt[evaluation]'"
