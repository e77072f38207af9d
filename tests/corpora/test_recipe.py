"""The recipes of the project, and what a recipe may have; wrong ones: tests/frozen/data."""

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
