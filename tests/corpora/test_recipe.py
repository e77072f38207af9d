"""The recipes of the project, and what is said about wrong ones."""

import gzip
import html
import re

import pytest
from msgspec.structs import fields

from capsnmt.corpora.prepared import PreparedData
from capsnmt.corpora.recipe import Cleaning, Piece, Recipe, Segmentation, Source, load_recipe
from capsnmt.corpora.sources import has_checksum
from capsnmt.corpora.text import make_tokeniser
from capsnmt.evaluation.text import moses_detokenizer
from tests.corpora.conftest import recipe_of, text, write_recipe
from tests.real_data import real_data
from tests.support import REPO


def test_the_recipe_knows_the_published_files():
    published = real_data("multi30k")
    recipe = load_recipe("multi30k")
    for name in recipe.needed():
        assert has_checksum(published / name, recipe.files[name].checksum)


@pytest.mark.parametrize("language", ["en", "vi"])
def test_text_that_is_published_as_tokens_is_tokenised_as_it_was(language):
    recipe = load_recipe("iwslt15_en_vi")
    tokenise = make_tokeniser(recipe.tokenised_by[language], language)
    detokenise = moses_detokenizer(language)
    path = real_data(f"iwslt15_en_vi/tst2013.{language}.gz")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as stream:
        lines = [html.unescape(line.rstrip("\n")) for line in stream][:300]
    assert [tokenise(detokenise(line)) for line in lines] == lines


def test_the_documented_recipe_is_complete_and_every_key_is_documented(tmp_path):
    page = (REPO / "data_prep/README.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "town.yaml").write_text(example, "utf-8")
    recipe = load_recipe(str(tmp_path / "town.yaml"))
    assert (recipe.name, recipe.languages, recipe.test_sets) == ("town", ("de", "en"), ["test"])
    for kind in (Recipe, Source, Piece, Segmentation, Cleaning):
        for field in fields(kind):
            assert f"`{field.encode_name}`" in page, field.encode_name


def test_a_test_set_of_a_recipe_has_its_references(corpus, run, tmp_path, no_fairseq):
    """Further files, columns or texts of the target; of the other direction they are none."""
    recipe = recipe_of(corpus)
    pairs = [*zip(*(text(corpus / f"test.{side}") for side in ("en", "de")))]
    table = "".join(f"{left}\t{right}\t{right} So!\n" for left, right in pairs)
    (corpus / "test.tsv").write_text(table, "utf-8")
    (corpus / "more.de").write_text("".join(f"{right} So!\n" for _, right in pairs), "utf-8")
    columns = {"en": 1, "de": 2, "de.1": 3}
    recipe["files"].update({"test.tsv": {}, "more.de": {}})
    recipe["splits"].update(
        files=[{"file": {"en": "test.en", "de": "test.de", "de.1": "more.de"}}],
        table=[{"file": "test.tsv", "format": "tsv", "columns": columns}],
    )
    path = write_recipe(tmp_path / "several.yaml", recipe)
    for pair in ("en-de", "de-en"):
        words = (path, "--pair", pair, "--local", corpus, "--output", tmp_path / pair)
        run(*words)
        data, target = PreparedData(tmp_path / pair), pair[3:]
        assert len(data.references("test", target)) == 1
        for name in ("files", "table"):
            found = [text(each) for each in data.references(name, target)]
            assert found[0] == text(corpus / f"test.{target}")
            assert found[1:] == ([text(corpus / "more.de")] if target == "de" else [])


def _piece(**values):
    return {"splits": {"test2": [values]}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"\udc80": 5}, "the key '\\udc80' is not text"),
        (
            {"merges": 5},
            "object contains unknown field `merges`; choose from pair, files, splits, to",
        ),
        ({"segmentation": {"size": 1, "method": "w"}}, "choose from bpe, sentencepiece"),
        ({"tokenisers": {"en": "moses"}}, "tokenisers has none for de"),
        ({"tokenised-by": {"dee": "moses"}}, "tokenised-by.dee is not of pair en-de"),
        ({"pair": "en-en"}, "pair is 'en-en'; expected `str` matching"),
        ({"splits": {"valid": None}}, "train, valid and at least one test"),
        ({"valid-every": 9}, "valid has more than one of splits, held-out and"),
        ({"codes": "c", "segmentation": {"size": 1, "joint": False}}, "codes is one file of bpe"),
        (
            {"splits": {"valid": None}, "held-out": {"test9": 1}, "valid-every": 9},
            "both take from the training pairs",
        ),
        (_piece(file="nope.{language}"), "no file nope.en; add it to files"),
        (_piece(file="train.en", format="xml"), "splits.test2.0.format is 'xml'; expected"),
        (_piece(file="train.en", format="tsv"), "splits.test2.0.columns has none for en"),
        (_piece(file="train.en", members={"en": "x"}), "splits.test2.0.members has none for de"),
        (_piece(file="train.en", format="wmt-xml"), "splits.test2.0.columns has none for en"),
        (
            _piece(file=dict.fromkeys(("en", "de", "de.1"), "train.en"), members={"en": "x"}),
            "splits.test2.0.members has none for de",
        ),
        (
            {"splits": {"train": [{"file": "train.{language}", "members": {"de.1": "x"}}]}},
            "splits.train has de.1, and only test sets have references; remove it",
        ),
        ({"files": {"../x.en": {}}}, "files: the key is '../x.en'"),
        ({"files": {"x": {"checksum": "1f"}}}, "files.x.checksum is '1f'; expected"),
        ({"files": {"x": {"urls": [["ftp://h/x"]]}}}, "'ftp://h/x'; expected `str`"),
    ],
)
def test_a_wrong_recipe_is_reported_with_what_is_wrong(corpus, refuse, tmp_path, change, message):
    recipe = recipe_of(corpus)
    for key, value in change.items():
        recipe[key] = {**recipe[key], **value} if key in ("splits", "files") else value
    recipe["splits"] = {split: pieces for split, pieces in recipe["splits"].items() if pieces}
    path = write_recipe(tmp_path / "wrong.yaml", recipe)
    refuse([path, "--output", tmp_path / "out"], f"error: {path}: ", message)
