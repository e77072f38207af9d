"""Forms of text: joined, in subwords, of other characters; each is read right, or not at all."""

import gzip
import unicodedata
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import pytest

from capsnmt.evaluation.__main__ import main
from tests.evaluation.conftest import Evaluate, Refuse, outputs, scores
from tests.evaluation.outputs import REFERENCE, generated, sgm, swapped, wmt_xml, write_lines

Evaluated = Callable[..., Tuple[Any, str]]


@pytest.fixture
def evaluated(evaluate: Evaluate, capsys: pytest.CaptureFixture) -> Evaluated:
    """Run the command; return its JSON and what it wrote to standard error."""

    def run(*arguments: object) -> Tuple[Any, str]:
        capsys.readouterr()
        return evaluate(*arguments), capsys.readouterr().err

    return run


def test_text_that_is_joined_already_keeps_its_spaces(
    files: Dict[str, str], tmp_path: Path, evaluated: Evaluated
) -> None:
    joined = write_lines(tmp_path / "joined", generated(REFERENCE))
    flags = ["--reference", files["reference"], "--remove-bpe", "sentencepiece"]
    document, errors = evaluated(f"x={joined}", *flags)
    assert scores(document)["x"] == pytest.approx(100)
    assert errors.count("\n") == 1
    assert "x has no marks of sentencepiece (▁), so it is taken as joined" in errors
    assert "--remove-bpe none --detokenize none" in errors
    told, errors = evaluated(
        f"x={joined}", *flags[:2], "--remove-bpe", "none", "--detokenize", "none"
    )
    assert told["systems"] == document["systems"]
    assert errors == ""
    pieces = ["▁" + line.replace(" ", " ▁") for line in REFERENCE]
    pieces[0] = pieces[0].replace("go", "g o")
    split = write_lines(tmp_path / "split", generated(pieces))
    document, errors = evaluated(f"x={split}", *flags)
    assert scores(document)["x"] == pytest.approx(100)
    assert errors == ""


def test_texts_are_compared_in_one_form_of_unicode(tmp_path: Path, evaluated: Evaluated) -> None:
    composed = ["Đường phố ở đây đẹp.", "Es ist schön, Zoë.", "plain words are here"] * 4
    apart = [unicodedata.normalize("NFD", line) for line in composed]
    given = {"NFC": composed, "NFD": apart}
    paths = {form: write_lines(tmp_path / form, lines) for form, lines in given.items()}
    # subwords may begin with an accent
    split = generated([line.replace("\u0308", "@@ \u0308") for line in apart], apart)
    decoded = write_lines(tmp_path / "decoded", split)
    records = []
    for reference in given:
        of_reference = ("--reference", paths[reference])
        flags = (*of_reference, "--tokenized-reference", paths[reference])
        for hypotheses in given:
            one = (f"x={paths[hypotheses]}", "--input", "plain", "--source", paths[reference])
            document, errors = evaluated(*one, *flags, "--target-lang", "de")
            records.append(document)
            notes = 3 * (reference == "NFD") + (hypotheses == "NFD")
            assert errors.count("8 of 12 lines are not in Unicode's NFC") == notes
        document, errors = evaluated(f"x={decoded}", *flags, "--detokenize", "none")
        assert "the S- lines of x: 8 of 12" in errors
        records.append(document)
    for document in records:
        assert scores(document)["x"] == scores(document, "multi-bleu")["x"] == pytest.approx(100)
        assert document["checksums"] == records[0]["checksums"]


def test_chrf_of_words_is_left_out_where_spaces_separate_none(
    tmp_path: Path, evaluated: Evaluated
) -> None:
    """Of a perfect translation it would be 79.7: the detokeniser drops the reference's spaces."""
    lines = ["我 喜欢 路由！", "胶囊，和 Transformer。"] * 4
    reference = write_lines(tmp_path / "reference", lines)
    perfect = write_lines(tmp_path / "x", [line.replace(" ", "") for line in lines])
    flags = ["--input", "plain", "--reference", reference, "--target-lang", "zh_CN"]
    document, errors = evaluated(f"x={perfect}", *flags)
    assert {*outputs(document)["x"]["scores"]} == {"bleu", "chrf", "ter"}
    assert errors.count("\n") == 1
    assert "which zh_CN does not separate" in errors
    assert scores(document, "chrf")["x"] == pytest.approx(100)


def test_a_language_that_the_text_or_the_log_denies_is_named(
    files: Dict[str, str], tmp_path: Path, evaluated: Evaluated
) -> None:
    """By its rules a perfect translation has 4 BLEU; cn is Chinese to all but ISO 639."""
    lines = ["我喜欢路由，它很好！", "胶囊网络很有意思。"] * 6
    chinese = write_lines(tmp_path / "chinese", lines)
    words = generated([" ".join(line) for line in lines])
    found = {}
    for code in ("cn", "ch"):
        log = [line.replace("[en]", f"[{code}]") for line in words]
        path = write_lines(tmp_path / code, log)
        document, errors = evaluated(f"x={path}", "--reference", chinese)
        found[code] = scores(document)["x"] > 5, "and the language is ch" in errors
        given, errors = evaluated(f"x={path}", "--reference", chinese, "--target-lang", "zh")
        assert scores(given)["x"] == pytest.approx(100)
        assert "--target-lang" not in errors  # ch may be a name of the user's own
    assert found == {"cn": (True, False), "ch": (False, True)}
    french = ["l&apos; homme est là .", "c&apos; est l&apos; eau d&apos; ici !"] * 6
    log = generated(french, language="fr")
    logs = {"a": log, "cut": log[1:]}
    given = [f"{name}={write_lines(tmp_path / name, lines)}" for name, lines in logs.items()]
    text = write_lines(tmp_path / "french", ["l'homme est là.", "c'est l'eau d'ici !"] * 6)
    document, errors = evaluated(*given, "--reference", text)
    assert errors.startswith("note: cut: no log names its language; fr is taken, ")
    assert scores(document, "ter") == {"a": 0, "cut": 0}
    english = (f"x={files['good']}", "--reference", files["reference"], "--target-lang")
    logged = "x: its log says that it is in en, and --target-lang is {}"
    written = "warning: 0 of 12 segments of the reference"
    for code in ("en_US", "de", "zh"):
        errors = evaluated(*english, code)[1]
        assert (logged.format(code) in errors) is (code != "en_US")
        assert (written in errors) is (code == "zh")


def test_every_reference_counts_and_all_of_them_are_recorded(
    files: Dict[str, str], tmp_path: Path, evaluated: Evaluated, capsys: pytest.CaptureFixture
) -> None:
    other = str(write_lines(tmp_path / "other", ["nothing of it"] * 12))
    given = [f"x={files['good']}", "--reference", files["reference"]]
    one, _ = evaluated(*given)
    assert "references" not in one
    checksums = [one["checksums"]["reference"]]
    for more in (other, files["reference"]):
        both, errors = evaluated(*given, "--reference", more)
        said = "" if more == other else f"warning: {more} has the text of {more}; is it a copy?\n"
        assert errors == said
        assert both["references"] == [files["reference"], more]
        assert scores(both)["x"] == scores(both, "multi-bleu")["x"] == pytest.approx(100)
        assert both["systems"][0]["outputs"][0]["bleu_by_length"]["<10"] == pytest.approx(100)
        checksums.append(both["checksums"]["reference"])
    assert len({*checksums}) == 3
    assert main([*given, "--reference", other]) == 0
    assert f"references: {files['reference']}, {other}" in capsys.readouterr().out


def test_references_in_markup_are_read_with_all_of_their_translators(
    files: Dict[str, str], tmp_path: Path, evaluated: Evaluated, refuse: Refuse
) -> None:
    other = ["R & D, nothing of it"] * 12
    second = write_lines(tmp_path / "second", other)
    system = (f"x={files['half']}", "--reference", files["reference"])
    one, _ = evaluated(*system)
    two, _ = evaluated(*system, "--reference", second)
    for name, content, expected in (
        ("one.sgm", sgm(REFERENCE, key="sysid"), one),
        ("one.xml", wmt_xml(REFERENCE), one),
        ("two.sgml", sgm(REFERENCE, other, key="sysid"), two),
        ("sets.sgm", sgm(REFERENCE, other, key="refid"), two),
        ("two.xml", wmt_xml(REFERENCE, other), two),
        ("two.xml.gz", wmt_xml(REFERENCE, other), two),
    ):
        path = tmp_path / name
        data = content.encode("utf-8")
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        document, errors = evaluated(system[0], "--reference", path)
        assert errors == ""
        assert document["reference"] == str(path)
        assert document["systems"] == expected["systems"], name
        assert document["checksums"] == expected["checksums"]
    assert document["references"] == [f"{path} (A)", f"{path} (B)"]
    as_plain = ("--input", "plain", "--target-lang", "en")
    segments = tmp_path / "system.sgm"
    segments.write_text(sgm(REFERENCE, key="sysid"), "utf-8")
    document, _ = evaluated(f"x={segments}", *as_plain, *system[1:])
    assert scores(document)["x"] == pytest.approx(100)
    other_order = tmp_path / "other.sgm"
    other_order.write_text(swapped(sgm(REFERENCE, key="sysid")), "utf-8")
    given = (f"x={segments}", *as_plain, "--reference", other_order)
    refuse(given, f"{segments} has the segments of", f"{other_order} in another order; give")
    both = sgm(REFERENCE, key="refid") + swapped(sgm(other, key="sysid"))
    other_order.write_text(both, "utf-8")
    refuse(given, f"{other_order} (ref0) has the segments of", "in another order; give")
    other_order.write_text(sgm(REFERENCE, key="sysid").replace('docid="d"', 'docid="e"'), "utf-8")
    _, errors = evaluated(*given)
    assert f"of {segments} have other ids than those of {other_order}" in errors
