"""Bad input of every kind, by the command line: one line, non-zero status, no partial file."""

from __future__ import annotations

import pytest

from tests.corpora.conftest import tree
from tests.corpora.miniatures import both, lines, recipe_for, sgm, tgz, wmt14_en_de

EUROPARL = "training-parallel-europarl-v7.tgz"
TEST = "test-full.tgz"
STEM = "training/europarl-v7.de-en"


def _europarl(english: bytes, german: bytes, **more: bytes) -> dict[str, bytes]:
    return {EUROPARL: tgz({f"{STEM}.en": english, f"{STEM}.de": german, **more})}


def _test_set(english: bytes, german: bytes) -> dict[str, bytes]:
    stem = "test-full/newstest2014-deen"
    return {TEST: tgz({f"{stem}-src.en.sgm": english, f"{stem}-ref.de.sgm": german})}


GOOD = {side: lines(range(20), side) for side in ("en", "de")}
SPOILT = {
    "unequal counts": (
        _europarl(GOOD["en"], lines(range(19), "de")),
        "europarl-v7.de-en.de has 19 lines but",
    ),
    "unequal segments": (
        _test_set(sgm(range(6), "en", "src"), sgm(range(5), "de", "ref")),
        "newstest2014-deen-ref.de.sgm has 5 lines but",
    ),
    "latin-1": (
        _europarl(GOOD["en"], "schön\n".encode("latin-1") * 20),
        "europarl-v7.de-en.de, line 1: not UTF-8",
    ),
    "truncated": (
        {EUROPARL: tgz(both(f"{STEM}.{{}}", range(20), "de en"))[:-30]},
        f"{EUROPARL}: a damaged archive",
    ),
    "no archive": ({EUROPARL: b"<html>Please log in</html>"}, f"{EUROPARL}: a damaged archive"),
    "another version": (
        {EUROPARL: tgz(both("training/europarl-v9.de-en.{}", range(20), "de en"))},
        "has no member europarl-v7.de-en.en, but training/europarl-v9.de-en.",
    ),
    "outside": (
        _europarl(GOOD["en"], GOOD["de"], **{"../x": b"x"}),
        "member '../x' lies outside the archive's folder",
    ),
    "no segments": (_test_set(b"<srcset></srcset>", b"<refset></refset>"), "no <seg> element"),
    "a segment cut off": (
        _test_set(sgm(range(6), "en", "src")[:-60], sgm(range(6), "de", "ref")),
        "segment 6 does not end",
    ),
    "missing": ({EUROPARL: None}, f"{EUROPARL} or training-parallel-europarl-v7.zip is missing"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_damaged_archives_are_one_line_and_leave_no_partial_file(run, tmp_path, no_fairseq, kind):
    spoilt, message = SPOILT[kind]
    local = tmp_path / "local"
    local.mkdir()
    files = {**wmt14_en_de(), **spoilt}
    for name, content in files.items():
        if content is not None:
            (local / name).write_bytes(content)
    recipe = recipe_for("wmt14_en_de", {}, tmp_path)
    output = tmp_path / "out"
    status, printed = run(recipe, "--local", local, "--output", output)
    assert status == 2
    errors = [line for line in printed.splitlines() if line.startswith("error: ")]
    assert printed.splitlines()[-1:] == errors
    assert message in errors[0]
    made = tree(output) if output.exists() else {}
    assert not [name for name in made if ".part" in name and name != "manifest.json.part"]
    assert not [name for name in made if name.startswith(("raw/", "bin/"))]
    assert "manifest.json" not in made
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("option", [("--corpora", "nope"), ("--corpora", "")])
def test_an_unknown_training_corpus_lists_the_known(run, tmp_path, option):
    status, printed = run("wmt17_zh_en", "--output", tmp_path / "out", *option)
    assert status == 2
    assert "are news-commentary-v12, un-v1.0, cwmt" in printed.splitlines()[-1]
    assert not (tmp_path / "out").exists()
