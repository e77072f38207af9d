from __future__ import annotations

import pytest
import yaml

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.recipe import load_recipe
from capsnmt.files import bundled_folder as folder
from capsnmt.files import bundled_names as names
from tests.corpora.conftest import recipe_of, write_recipe


def _shipped():
    for name in names("recipes"):
        content = yaml.safe_load((folder("recipes") / f"{name}.yaml").read_text(encoding="utf-8"))
        for pair in content.get("pairs", [content.get("pair")]):
            yield name, pair


@pytest.mark.parametrize(("name", "pair"), _shipped())
def test_every_shipped_recipe_loads_for_each_of_its_pairs(name, pair):
    recipe = load_recipe(name, pair)
    assert recipe.pair == pair == f"{recipe.source}-{recipe.target}"
    assert recipe.splits[:2] == ["train", "valid"]
    assert len(recipe.splits) > 2
    assert recipe.description


def test_the_demo_has_the_papers_pairs_and_starts_with_english_german():
    pairs = [pair for name, pair in _shipped() if name == "catalogues"]
    assert pairs == ["en-de", "es-en", "en-vi", "zh-en"]
    assert load_recipe("catalogues").pair == "en-de"
    assert load_recipe("catalogues", "zh-en").corpus.splits.keys() == {"train", "valid", "test"}


def test_multi30k_is_the_published_corpus():
    recipe = load_recipe("multi30k")
    assert recipe.splits == ["train", "valid", "test_2016_flickr", "test_2017_flickr"]
    assert recipe.segmentation.size == 10000


@pytest.mark.parametrize("name", ["wmt99", "../recipes/multi30k", "", "no.yaml", "/etc/passwd"])
def test_unknown_recipe_lists_the_known(name):
    with pytest.raises(ConfigurationError, match=r"unknown: use catalogues, .*, or the path"):
        load_recipe(name)


def test_unknown_pair_lists_the_known():
    with pytest.raises(ConfigurationError, match=r"--pair de-en: .* en-de, es-en, en-vi, zh-en"):
        load_recipe("catalogues", "de-en")


def _without(key):
    return lambda recipe: recipe.pop(key)


def _piece(**values):
    return lambda recipe: recipe["corpus"]["splits"].update(test2=[values])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(merges=5), "merges: unknown key: the file may have description, pair"),
        (_without("segmentation"), "segmentation is not set: the file may have"),
        (
            lambda r: r["segmentation"].update(size="x"),
            "segmentation.size: 'x': give a whole",
        ),
        (lambda r: r["segmentation"].update(size=0), "size 0: give a positive number"),
        (lambda r: r["segmentation"].update(method="w"), "method 'w': use bpe, sentencepiece"),
        (lambda r: r.update(tokenisers={"en": "moses"}), "tokeniser None of de: use moses"),
        (
            lambda r: r.update(cleaning={"max": 3}),
            "cleaning.max: unknown key: cleaning",
        ),
        (lambda r: r.update(pair="en"), "pair 'en': give SOURCE-TARGET"),
        (lambda r: r.update(pair="en-en"), "pair 'en-en': give SOURCE-TARGET"),
        (lambda r: r["corpus"].update(kind="web"), "corpus.kind: 'web': give published"),
        (lambda r: r["corpus"].update(kind=["web"]), "corpus.kind: ['web']: give published"),
        (lambda r: r.update(corpus=["x"]), "corpus: ['x']: give a mapping"),
        (lambda r: r.update(corpus=None), "corpus: None: give a mapping"),
        (lambda r: r.update(pair=["en", "de"]), "pair: ['en', 'de']: give SOURCE-TARGET"),
        (lambda r: r.update(pairs={}), "pairs: {}: give a mapping of mappings"),
        (lambda r: r.update(tokenisers={"en": ["moses"]}), "tokenisers.en: ['moses']: give"),
        (lambda r: r["corpus"]["splits"].pop("valid"), "train, valid and at least one test"),
        (lambda r: r["corpus"]["splits"].pop("test"), "train, valid and at least one test"),
        (_piece(file="nope.{language}"), "no file nope.en for split test2"),
        (_piece(file="train.en", format="xml"), "format 'xml' of split test2: use plain, moses"),
        (_piece(file="train.en", encoding="utf8x"), "encoding 'utf8x' of split test2 is unknown"),
        (_piece(file="train.en", format="tsv"), "columns {} of split test2: give en a column"),
        (_piece(file="train.en", members="x"), "train.en is no archive: leave out members"),
        (_piece(file="train.en", member="x"), "corpus.splits.test2.member: unknown key"),
        (_piece(members="x"), "corpus.splits.test2.file is not set"),
        (lambda r: r["corpus"]["splits"].update(test=3), "corpus.splits.test: 3: give a list"),
        (lambda r: r["corpus"]["files"].update({"../x.en": ""}), "'../x.en': a plain file name"),
        (lambda r: r["corpus"]["files"].update(x="1f"), "checksum '1f' of x: 64 hexadecimal"),
        (
            lambda r: r["corpus"]["files"].update(x={"urls": [["ftp://host/x"]]}),
            "url 'ftp://host/x' of x: give an http:// or https:// address",
        ),
        (
            lambda r: r["corpus"]["files"].update(x={"otherwise": "y"}),
            "x is otherwise 'y': name another of files",
        ),
        (
            lambda r: r["corpus"]["files"].update(x={"otherwise": "x"}),
            "x is otherwise 'x': name another of files, one that is not otherwise a third",
        ),
    ],
)
def test_a_wrong_recipe_is_reported_with_what_is_wrong(corpus, tmp_path, change, message):
    recipe = recipe_of(corpus)
    change(recipe)
    with pytest.raises(ConfigurationError) as error:
        load_recipe(str(write_recipe(tmp_path / "wrong.yaml", recipe)))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_members_and_archives_belong_together(corpus, tmp_path):
    recipe = recipe_of(corpus)
    recipe["corpus"]["files"]["a.tgz"] = ""
    for members, message in (("", "a.tgz is an archive: give members"), ({"en": "x"}, "for de")):
        recipe["corpus"]["splits"]["test"] = [{"file": "a.tgz", "members": members}]
        with pytest.raises(ConfigurationError, match=message):
            load_recipe(str(write_recipe(tmp_path / "wrong.yaml", recipe)))


def test_held_out_shares_leave_something_to_train_on(tmp_path):
    recipe = yaml.safe_load((folder("recipes") / "catalogues.yaml").read_text(encoding="utf-8"))
    recipe["corpus"]["held_out"] = {"valid": 500, "test": 500}
    with pytest.raises(ConfigurationError, match="per mille"):
        load_recipe(str(write_recipe(tmp_path / "wrong.yaml", recipe)))


def test_the_papers_corpora_have_the_papers_splits_and_sizes():
    recipes = {name: load_recipe(name) for name in names("recipes")}
    papers = {name: recipe for name, recipe in recipes.items() if name[:3] in {"wmt", "iws"}}
    found = {
        name: (recipe.pair, recipe.segmentation.size, recipe.segmentation.joint, recipe.splits)
        for name, recipe in papers.items()
    }
    splits = ["train", "valid", "test"]
    assert found == {
        "wmt14_en_de": ("en-de", 32000, True, splits),
        "wmt17_zh_en": ("zh-en", 32000, False, splits),
        "iwslt14_es_en": ("es-en", 34000, True, splits),
        "iwslt15_en_vi": ("en-vi", 21000, True, splits),
    }
    assert recipes["wmt17_zh_en"].cleaning.max_length == 49  # duan2020: fewer than 50 tokens
    assert recipes["iwslt14_es_en"].cleaning.max_subwords == 150
    assert recipes["iwslt15_en_vi"].cleaning.max_subwords == 150


def test_training_corpora_are_chosen_by_name():
    chosen = load_recipe("wmt17_zh_en", corpora="un-v1.0,cwmt").corpus
    assert {piece.name for piece in chosen.splits["train"]} == {"un-v1.0", "cwmt"}
    assert not chosen.warning()
    alone = load_recipe("wmt17_zh_en", corpora="news-commentary-v12").corpus
    assert "expect about 7 BLEU" in alone.warning()
    with pytest.raises(ConfigurationError, match=r"x: .* news-commentary-v12, un-v1\.0, cwmt"):
        load_recipe("wmt17_zh_en", corpora="x")
    with pytest.raises(ConfigurationError, match="--corpora x: recipe catalogues has one"):
        load_recipe("catalogues", corpora="x")
