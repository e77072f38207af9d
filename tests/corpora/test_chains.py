"""The papers' four corpora at miniature size, from archives on a server to the data-bin."""

from __future__ import annotations

import gzip
import html
import json
import re
import shutil
import unicodedata

import pytest

from capsnmt.corpora import download, engine
from capsnmt.corpora.manifest import Manifest
from capsnmt.corpora.text import TOKENISERS
from tests.corpora.conftest import tree
from tests.corpora.miniatures import MINIATURES, SPLITS, recipe_for, sentence
from tests.corpora.server import serving
from tests.real_data import real_data

CHAINS = list(MINIATURES)


class Killed(BaseException):
    """An exception that no handler of the program catches."""


@pytest.fixture
def served(monkeypatch):
    """Serve a miniature; only loopback is used."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    with serving({}) as server:
        yield server


@pytest.fixture
def quick_chinese(monkeypatch):
    """Two characters are a word here, because jieba takes a second to load its dictionary."""
    word = re.compile("[\u4e00-\u9fff]{1,2}|[^\u4e00-\u9fff]+")

    def make(language):
        return lambda line: " ".join(word.findall(line.replace(" ", "")))

    monkeypatch.setitem(TOKENISERS, "jieba", make)


@pytest.fixture
def chain(served, run, tmp_path, no_fairseq, quick_chinese):
    """The command line that prepares a miniature from the server."""

    def chain(name, **changes):
        files = MINIATURES[name]()
        served.files.update(files)
        recipe = recipe_for(name, files, tmp_path, **changes)
        return recipe, "--mirror", f"{served.address}/good", "--output", tmp_path / "prepared"

    return chain


def _text(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", CHAINS)
def test_every_split_has_the_published_sentences_in_order(chain, run, tmp_path, name):
    status, printed = run(*chain(name))
    assert status == 0, printed
    pair = json.loads((tmp_path / "prepared" / "manifest.json").read_text())["pair"]
    for split, numbers in SPLITS[name].items():
        for side in pair.split("-"):
            made = _text(tmp_path / "prepared" / "raw" / f"{split}.{side}")
            expected = [sentence(number, side) for number in numbers]
            if name == "iwslt15_en_vi":
                expected = [text.replace(".", " .") for text in expected]
            if name == "wmt17_zh_en" and side == "zh" and split == "train":
                made = [text.replace(" ", "") for text in made]
            assert made == expected, (split, side)
    assert _text(tmp_path / "prepared" / "bpe" / f"test.{side}")
    papers = {"wmt14_en_de": "3,000", "wmt17_zh_en": "2,002", "iwslt14_es_en": "5,593"}
    papers["iwslt15_en_vi"] = "1,553"
    lines = len(list(SPLITS[name]["valid"]))
    assert f"WARNING: valid has {lines} pairs, and {papers[name]} in the papers" in printed

    # complete data need neither the sources nor the flag that named them
    shutil.rmtree(tmp_path / "prepared" / "sources")
    recipe, output = tmp_path / f"{name}.yaml", tmp_path / "prepared"
    status, printed = run(recipe, "--offline", "--output", output)
    assert status == 0, printed


def test_killed_at_every_step_the_same_command_ends_with_the_same_bytes(
    chain, run, tmp_path, monkeypatch
):
    arguments = chain("wmt17_zh_en")  # the corpus with every kind of archive
    status, printed = run(*arguments)
    assert status == 0, printed
    expected = tree(tmp_path / "prepared")
    shutil.rmtree(tmp_path / "prepared")
    seen: set[object] = set()
    alive: list[bool] = []

    def die_once_at(event):
        if event not in seen:
            seen.add(event)
            alive.clear()
            raise Killed

    def remove_if_alive(path, remove=engine.remove):
        # SIGKILL leaves partial files in place.
        if alive:
            remove(path)

    def publish_or_die(part, path, publish=engine.publish):
        die_once_at(path)
        publish(part, path)

    def record_or_die(manifest, step, notes, record=Manifest.record):
        die_once_at(step.name)
        record(manifest, step, notes)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "publish", publish_or_die)
        patch.setattr(download, "publish", publish_or_die)
        patch.setattr(Manifest, "record", record_or_die)
        patch.setattr(engine, "remove", remove_if_alive)
        deaths = 0
        while True:
            alive.append(True)
            try:
                status, printed = run(*arguments)
                break
            except Killed:
                deaths += 1
                assert not (tmp_path / "prepared" / "manifest.json").exists()
    assert status == 0, printed
    assert deaths == len(seen) > 30
    assert run(*arguments)[0] == 0
    made = tree(tmp_path / "prepared")
    assert [name for name in {**made, **expected} if made.get(name) != expected.get(name)] == []


def test_only_news_commentary_is_a_loud_warning_and_fetches_nothing_else(
    chain, run, served, tmp_path
):
    status, printed = run(*chain("wmt17_zh_en"), "--corpora", "news-commentary-v12")
    assert status == 0, printed
    assert "WARNING: only news-commentary-v12" in printed
    assert "about 7 BLEU" in printed
    assert len(_text(tmp_path / "prepared" / "raw" / "train.zh")) == 20
    assert "cwmt" not in printed.split("WARNING")[0]
    assert not list((tmp_path / "prepared" / "sources").glob("UN*"))


def test_training_pairs_of_fifty_tokens_are_dropped_and_of_49_kept(chain, run, served, tmp_path):
    arguments = chain("iwslt15_en_vi", cleaning={"max_length": 49})
    for side in ("en", "vi"):
        served.files[f"train.{side}"] += b" ".join([b"w"] * 49) + b"\n" + b"w " * 50 + b"\n"
    assert run(*arguments)[0] == 0
    kept = _text(tmp_path / "prepared" / "clean" / "train.en")
    assert [len(line.split()) for line in kept if line.startswith("w")] == [49]


def test_subwords_are_limited_in_training_only(chain, run, tmp_path):
    limits = {"max_length": 250, "max_subwords": 16}
    assert run(*chain("iwslt15_en_vi", cleaning=limits))[0] == 0
    folder = tmp_path / "prepared"
    lengths = {
        stage: [len(line.split()) for line in _text(folder / stage / "train.en")]
        for stage in ("bpe", "limited")
    }
    assert max(lengths["bpe"]) > 16 >= max(lengths["limited"])
    assert max(len(line.split()) for line in _text(folder / "bpe" / "test.en")) > 16
    notes = json.loads((folder / "manifest.json").read_text())["steps"]["limit train"]["notes"]
    assert notes["pairs"]["kept"] == len(lengths["limited"])
    assert sum(notes["pairs"].values()) == len(lengths["bpe"])


def test_duplicates_go_on_request_and_the_first_stays(chain, run, served, tmp_path):
    arguments = chain("iwslt15_en_vi")
    for side in ("en", "vi"):
        served.files[f"train.{side}"] *= 2
    folder = tmp_path / "prepared"
    assert run(*arguments)[0] == 0
    assert len(_text(folder / "clean" / "train.en")) == 80
    left_by_a_kill = folder / "clean" / "duplicates.part"
    left_by_a_kill.mkdir()
    assert run(*arguments, "--deduplicate")[0] == 0
    once = _text(folder / "tokenised" / "train.en")[:40]
    assert _text(folder / "clean" / "train.en") == once
    notes = json.loads((folder / "manifest.json").read_text())["steps"]["clean train"]["notes"]
    assert notes["pairs"] == {"duplicate": 40, "kept": 40}
    assert not list(folder.rglob("*.part*"))


def test_sentencepiece_in_place_of_bpe_for_each_language(chain, run, tmp_path):
    segmentation = {"size": 60, "method": "sentencepiece", "joint": False}
    status, printed = run(*chain("iwslt15_en_vi", segmentation=segmentation))
    assert status == 0, printed
    folder = tmp_path / "prepared" / "bpe"
    assert (folder / "sentencepiece.model.vi").is_file()
    for side in ("en", "vi"):
        segmented = _text(folder / f"test.{side}")
        tokenised = _text(tmp_path / "prepared" / "tokenised" / f"test.{side}")
        joined = [line.replace(" ", "").replace("▁", " ").strip() for line in segmented]
        assert joined == tokenised


def test_a_source_trusted_at_first_use_may_not_change(chain, run, served, tmp_path):
    arguments = chain("iwslt14_es_en")
    assert run(*arguments)[0] == 0
    manifest = tmp_path / "prepared" / "manifest.json"
    source = tmp_path / "prepared" / "sources" / "2014-01.tgz"
    recorded = json.loads(manifest.read_text())["sources"]["2014-01.tgz"]
    assert recorded["trusted"] == "at first use"
    assert recorded["bytes"] == source.stat().st_size
    for path in ("sources", "extracted"):  # complete data would not be fetched again
        shutil.rmtree(tmp_path / "prepared" / path)
    assert run(*arguments)[0] == 0  # the same file again
    assert source.exists()
    for path in ("sources", "extracted"):
        shutil.rmtree(tmp_path / "prepared" / path)
    served.files["2014-01.tgz"] = served.files["2014-01-test.tgz"]
    recipe = arguments[0].read_text(encoding="utf-8")
    arguments[0].write_text(recipe.replace("https://drive", "http://127.0.0.1:9/drive"))
    status, printed = run(*arguments)
    assert status == 1
    last = printed.splitlines()[-1]
    assert f"its checksum is not {recorded['sha256']}" in last
    assert "was recorded at its first download" in last
    assert not source.exists()


def test_the_real_test_sets_of_iwslt15_come_out_as_published(run, tmp_path, no_fairseq):
    real = real_data("iwslt15_en_vi")
    local = tmp_path / "local"
    local.mkdir()
    published = {}
    for path in real.glob("*.gz"):
        (local / path.name).write_bytes(path.read_bytes())
        published[path.name[: -len(".gz")]] = gzip.decompress(path.read_bytes()).decode()
    for side in ("en", "vi"):  # the real training text is not at hand
        text = published[f"tst2012.{side}"]
        (local / f"train.{side}").write_text(text.replace("\n", "\r\n"), encoding="utf-8")
    folder = tmp_path / "prepared"
    recipe = recipe_for("iwslt15_en_vi", {}, tmp_path, segmentation={"size": 100})
    status, printed = run(recipe, "--local", local, "--output", folder)
    assert status == 0, printed
    assert "note:" not in printed  # they have the recipe's checksums
    lengths = {"valid": ("tst2012", 1553), "test": ("tst2013", 1268)}
    for split, (stem, length) in lengths.items():
        for side in ("en", "vi"):
            raw = (folder / "raw" / f"{split}.{side}").read_text(encoding="utf-8").split("\n")
            assert len(raw) == length + 1
            assert raw == html.unescape(published[f"{stem}.{side}"]).split("\n")
            assert not any("&apos;" in line for line in raw)
            segmented = (folder / "bpe" / f"{split}.{side}").read_text(encoding="utf-8")
            joined = segmented.replace("@@ ", "").split("\n")
            assert joined == [unicodedata.normalize("NFC", " ".join(line.split())) for line in raw]


@pytest.mark.parametrize("name", CHAINS)
def test_the_shipped_recipe_takes_ones_own_archives(
    run, tmp_path, no_fairseq, quick_chinese, monkeypatch, name
):
    monkeypatch.setattr("requests.get", lambda *args, **kwargs: pytest.fail("asked the network"))
    for file, content in MINIATURES[name]().items():
        (tmp_path / file).write_bytes(content)
    status, printed = run(name, "--local", tmp_path, "--output", tmp_path / "prepared")
    assert status == 0, printed
    assert (tmp_path / "prepared" / "manifest.json").is_file()
    if name != "iwslt14_es_en":  # nobody has published a checksum of its archives
        assert "is not the published file" in printed
