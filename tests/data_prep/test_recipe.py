from __future__ import annotations

import pytest
import yaml

from data_prep.errors import PreparationError
from data_prep.recipe import FOLDER, load_recipe, recipe_names
from tests.data_prep.conftest import recipe_of, write_recipe


def _shipped():
    for name in recipe_names():
        content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
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
    assert recipe.bpe_merges == 10000


@pytest.mark.parametrize("name", ["wmt99", "../recipes/multi30k", "", "no.yaml", "/etc/passwd"])
def test_unknown_recipe_lists_the_known(name):
    with pytest.raises(PreparationError, match="unknown: use catalogues, multi30k, or the path"):
        load_recipe(name)


def test_unknown_pair_lists_the_known():
    with pytest.raises(PreparationError, match=r"--pair de-en: .* has en-de, es-en, en-vi, zh-en"):
        load_recipe("catalogues", "de-en")


def _without(key):
    return lambda recipe: recipe.pop(key)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(merges=5), "unknown key 'merges'; the keys are name, description"),
        (_without("bpe_merges"), "key 'bpe_merges' is missing"),
        (lambda r: r.update(bpe_merges="many"), "bpe_merges is 'many': a whole number is needed"),
        (lambda r: r.update(bpe_merges=0), "bpe_merges 0: give a positive number"),
        (lambda r: r.update(tokenisers={"en": "moses"}), "tokeniser None of de: use moses"),
        (lambda r: r.update(cleaning={"max": 3}), "cleaning: unknown key 'max'"),
        (lambda r: r.update(pair="en"), "pair 'en': give SOURCE-TARGET"),
        (lambda r: r["corpus"].update(kind="web"), "kind 'web' is unknown: use parallel_files"),
        (lambda r: r["corpus"].update(mirrors="x"), "mirrors is 'x': a list is needed"),
        (lambda r: r["corpus"]["splits"].pop("valid"), "train, valid and at least one test"),
        (lambda r: r["corpus"]["splits"].pop("test"), "train, valid and at least one test"),
        (lambda r: r["corpus"]["splits"].update(test2="nope"), "no file nope.en or nope.en.gz"),
        (lambda r: r["corpus"]["files"].update({"../x.en": "0"}), "'../x.en': a plain file name"),
    ],
)
def test_a_wrong_recipe_says_what_is_wrong(corpus, tmp_path, change, message):
    recipe = recipe_of(corpus)
    change(recipe)
    with pytest.raises(PreparationError) as error:
        load_recipe(str(write_recipe(tmp_path / "wrong.yaml", recipe)))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_held_out_shares_leave_something_to_train_on(tmp_path):
    recipe = yaml.safe_load((FOLDER / "catalogues.yaml").read_text(encoding="utf-8"))
    recipe["corpus"]["held_out"] = {"valid": 500, "test": 500}
    with pytest.raises(PreparationError, match="per mille"):
        load_recipe(str(write_recipe(tmp_path / "wrong.yaml", recipe)))


def test_broken_yaml_is_one_line(tmp_path):
    (tmp_path / "broken.yaml").write_text("a: [1\nb: {")
    with pytest.raises(PreparationError, match=r"broken\.yaml: not YAML") as error:
        load_recipe(str(tmp_path / "broken.yaml"))
    assert "\n" not in str(error.value)
