"""``capsnmt-evaluate``: its choices and its two reports."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from capsnmt.evaluation.__main__ import main
from capsnmt.evaluation.scores import METRICS
from tests.evaluation.outputs import TOKENS, generated, write_lines


def as_json(capsys: pytest.CaptureFixture, *arguments: str) -> Dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def of(system: Dict[str, Any]) -> Dict[str, Any]:
    """The scores of a system with one output."""
    (output,) = system["outputs"]
    return output["scores"]


def scores(document: Dict[str, Any], metric: str = "bleu") -> Dict[str, float]:
    return {system["name"]: of(system)[metric]["score"] for system in document["systems"]}


def test_tokens_are_scored_as_text_against_the_raw_reference(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    document = as_json(capsys, f"good={files['good']}", "--reference", files["reference"])
    assert scores(document) == {"good": pytest.approx(100)}
    assert scores(document, "chrf") == {"good": pytest.approx(100)}
    assert scores(document, "chrf++") == {"good": pytest.approx(100)}
    assert scores(document, "ter") == {"good": 0}
    assert (document["reference"], document["segments"]) == (files["reference"], 12)
    assert document["target_lang"] == "en"


def test_generated_and_plain_files_of_one_system_have_the_same_scores(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    reference = ["--reference", files["reference"]]
    generate = as_json(capsys, f"x={files['half']}", *reference)
    plain = as_json(capsys, f"x={files['plain']}", *reference, "--input", "plain")
    for metric in METRICS:
        assert of(generate["systems"][0])[metric] == of(plain["systems"][0])[metric]
        assert 0 < scores(plain, metric)["x"] < 100


def test_bpe_and_tokens_are_kept_on_request(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    flags = ["--reference", files["reference"], "--detokenize", "none"]
    tokens = scores(as_json(capsys, f"x={files['good']}", *flags))["x"]
    pieces = scores(as_json(capsys, f"x={files['good']}", *flags, "--remove-bpe", "none"))["x"]
    assert pieces < tokens < 100


def test_the_target_lines_are_the_reference_and_this_is_reported(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    assert main([files["good"], "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert "not the raw reference" in printed.err
    assert document["reference"] is None
    assert of(document["systems"][0])["bleu"]["score"] == pytest.approx(100)


def test_target_lines_that_fairseq_detokenised_are_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    # detokenised twice, the space before the closing quotation mark would go
    target = ['He said " no " twice.']
    lines = generated(
        ["He said &quot; no &quot; twi@@ ce ."], target, decoded=['He said "no" twice.']
    )
    path = write_lines(tmp_path / "x", lines)
    score = scores(as_json(capsys, f"x={path}"), "ter")["x"]
    path = write_lines(tmp_path / "x", [line for line in lines if not line.startswith("D-")])
    assert scores(as_json(capsys, f"x={path}"), "ter") == {"x": 0}
    assert score > 0


def test_an_unknown_language_is_reported(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    assert main([files["unlogged"]]) == 0
    assert "no --target-lang" in capsys.readouterr().err
    assert main([files["unlogged"], "--target-lang", "en"]) == 0
    assert "no --target-lang" not in capsys.readouterr().err


def test_unknown_words_in_the_reference_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    targets = ["a <<unk>> house", "a house", "<<unk>> <<unk>>"]
    path = write_lines(tmp_path / "x", generated(["a house"] * 3, targets))
    assert main([str(path)]) == 0
    assert "2 references contain <<unk>>" in capsys.readouterr().err


@pytest.mark.parametrize("baseline", ["base", "{half}", "base={half}"])
def test_a_baseline_is_a_name_or_a_file_and_comes_first(
    files: Dict[str, str], capsys: pytest.CaptureFixture, baseline: str
) -> None:
    systems = [f"good={files['good']}", f"base={files['half']}"]
    flags = ["--reference", files["reference"], "--samples", "20", "--seed", "7"]
    document = as_json(capsys, *systems, "--baseline", baseline.format(**files), *flags)
    assert [system["name"] for system in document["systems"]] == ["base", "good"]
    test = {"baseline": "base", "method": "bootstrap", "samples": 20, "seed": 7}
    assert document["test"] == test
    base, good = map(of, document["systems"])
    assert set(good) == {*METRICS, "multi-bleu"}
    assert "p_value" not in base["bleu"]
    assert "delta" not in base["bleu"]
    assert good["bleu"]["p_value"] == pytest.approx(1 / 21)
    assert good["bleu"]["signature"] == base["bleu"]["signature"]


def test_randomization_replaces_the_bootstrap_and_is_reported(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    arguments = [f"good={files['good']}", "--baseline", f"base={files['half']}"]
    arguments += ["--reference", files["reference"], "--seed", "7"]
    arguments += ["--significance", "approximate-randomization", "--samples", "40"]
    document = as_json(capsys, *arguments)
    test = {"method": "approximate-randomization", "samples": 40, "seed": 7}
    assert document["test"] == {"baseline": "base", **test}
    good = of(document["systems"][1])["bleu"]
    assert 0 < good["p_value"] <= 1
    assert "ci" not in good
    assert main(arguments) == 0
    table = capsys.readouterr().out
    assert "paired approximate randomization" in table
    assert "40 trials, seed 7" in table
    assert "95%" not in table


def test_a_baseline_may_be_one_more_file(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    flags = ["--reference", files["reference"], "--samples", "5"]
    document = as_json(capsys, f"good={files['good']}", "--baseline", f"b={files['half']}", *flags)
    assert list(scores(document)) == ["b", "good"]


def test_a_copy_of_the_baseline_is_reported(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    systems = [f"a={files['good']}", f"b={files['good']}"]
    assert main([*systems, "--baseline", "a", "--samples", "5"]) == 0
    assert "b equals a in every sentence: ignore its p-value" in capsys.readouterr().err


def test_the_table_and_the_json_file_have_the_same_numbers(
    files: Dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    report = tmp_path / "report.json"
    systems = [f"base={files['half']}", f"good={files['good']}", "--reference", files["reference"]]
    for _ in range(2):  # an older report is replaced
        arguments = [*systems, "--baseline", "base", "--samples", "20", "--json", str(report)]
        assert main(arguments) == 0
    table = capsys.readouterr().out
    document = json.loads(report.read_text(encoding="utf-8"))
    for system in document["systems"]:
        row = next(line for line in table.splitlines() if line.startswith(system["name"]))
        expected = [f"{of(system)[metric]['score']:.2f}" for metric in METRICS]
        assert row.split()[1:] == expected
        assert all(of(system)[metric]["signature"] in table for metric in METRICS)
    assert "20 resamples, seed 12345" in table
    used = {"capsnmt", "python", "sacrebleu", "sacremoses"}
    assert set(document["versions"]) == used


def test_several_outputs_are_one_system_with_mean_and_deviation(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    flags = ["--reference", files["reference"]]
    alone = [scores(as_json(capsys, f"x={files[name]}", *flags))["x"] for name in ("half", "good")]
    system = as_json(capsys, f"x={files['half']},{files['good']}", *flags)["systems"][0]
    assert [each["scores"]["bleu"]["score"] for each in system["outputs"]] == alone
    assert [each["path"] for each in system["outputs"]] == [files["half"], files["good"]]
    assert main([f"x={files['half']},{files['good']}", *flags]) == 0
    table = capsys.readouterr().out
    rows = [line.split() for line in table.splitlines() if line[:3] in ("x  ", "  s", "  1", "  2")]
    expected = [f"{sum(alone) / 2:.2f}", f"{abs(alone[0] - alone[1]) / 2**0.5:.2f}"]
    assert (rows[0][1], rows[1][2]) == (expected[0], expected[1])
    assert [row[:2] for row in rows[2:4]] == [["1", f"{alone[0]:.2f}"], ["2", f"{alone[1]:.2f}"]]


def test_each_seed_is_tested_against_its_own_seed_of_the_baseline(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    flags = ["--reference", files["reference"], "--samples", "20"]
    seeds = as_json(
        capsys, f"x={files['good']},{files['third']}",
        "--baseline", f"base={files['third']},{files['half']}", *flags,
    )  # fmt: skip
    pairs = [("good", "third"), ("third", "half")]
    for output, (system, base) in zip(seeds["systems"][1]["outputs"], pairs):
        alone = as_json(capsys, f"x={files[system]}", "--baseline", f"base={files[base]}", *flags)
        assert output == alone["systems"][1]["outputs"][0]


def test_several_seeds_are_tested_against_one_output_of_the_baseline(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    flags = ["--baseline", f"base={files['half']}", "--reference", files["reference"]]
    flags += ["--samples", "20"]
    both = as_json(capsys, f"x={files['good']},{files['third']}", *flags)["systems"][1]["outputs"]
    for output, name in zip(both, ("good", "third")):
        alone = as_json(capsys, f"x={files[name]}", *flags)["systems"][1]
        assert output == alone["outputs"][0]


def test_every_score_of_the_literature_states_what_it_is_comparable_with(
    files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    flags = ["--reference", files["reference"], "--target-lang", "de"]
    document = as_json(capsys, f"x={files['half']}", *flags)
    assert main([f"x={files['half']}", *flags]) == 0
    table = capsys.readouterr().out
    for kind in ("multi-bleu", "compound-split"):
        score = of(document["systems"][0])[kind]
        assert f"{kind}: multi-bleu.perl" in table
        assert score["signature"] in table
        assert f"{score['score']:.2f}" in table
    assert "mteval-v13a.pl -c" in table


def test_lengths_are_those_of_the_source_lines_or_of_a_file(
    files: Dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    flags = ["--reference", files["reference"]]
    document = as_json(capsys, f"x={files['half']}", *flags)
    bleu, (output,) = scores(document)["x"], document["systems"][0]["outputs"]
    assert document["segments_by_length"] == {"<10": 12}
    assert output["bleu_by_length"] == {"<10": pytest.approx(bleu)}
    source = write_lines(tmp_path / "source", ["x " * 25] * 5 + ["x"] * 7)
    document = as_json(capsys, f"x={files['half']}", *flags, "--source", str(source))
    assert document["segments_by_length"] == {"<10": 7, "20-30": 5}
    assert document["length_unit"] == f"the tokens of {source}"
    (output,) = document["systems"][0]["outputs"]
    assert output["bleu_by_length"].keys() == {"<10", "20-30"}


def test_sources_of_another_bpe_are_accepted_but_have_no_lengths(
    files: Dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    other = write_lines(tmp_path / "o", [x.replace("\tx", "\tx@@ y") for x in generated(TOKENS)])
    assert main([f"a={files['good']}", f"b={other}", "--reference", files["reference"]]) == 0
    printed = capsys.readouterr()
    assert "S- lines differ" in printed.err
    assert "by source length" not in printed.out


@pytest.mark.parametrize("library", ["sacrebleu.metrics", "sacremoses"])
def test_a_missing_library_is_one_line_that_names_it(
    files: Dict[str, str],
    library: str,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    systems = [f"a={files['good']}", "--baseline", f"b={files['half']}", "--samples", "5"]
    assert main([*systems, "--reference", files["reference"]]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"error: {library} is not installed: pip install 'capsnmt[evaluation]'"


def test_empty_translations_are_counted(
    tmp_path: Path, files: Dict[str, str], capsys: pytest.CaptureFixture
) -> None:
    path = write_lines(tmp_path / "x", generated([*TOKENS[:-2], "", ""]))
    assert main([f"x={path}", "--reference", files["reference"]]) == 0
    assert "2 of the 12 translations of x are empty" in capsys.readouterr().err
