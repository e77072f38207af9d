"""Where source files come from: the user's folder, the cache, mirrors, other packings."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.sources import SourceFile, Store, obtain
from tests.corpora.miniatures import MINIATURES, recipe_for, tgz
from tests.corpora.server import serving

CONTENT = b"text\n" * 100


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    with serving({}) as server:
        yield server


@pytest.fixture
def local(tmp_path):
    folder = tmp_path / "local"
    folder.mkdir()
    return folder


def _local(local, name="a.en", **files):
    listed = {name: SourceFile(), **files}
    return obtain(name, listed, (), Store(local.parent / "cache", local))


def test_a_file_of_the_user_is_used_in_place(local):
    (local / "a.en").write_bytes(CONTENT)
    assert _local(local) == local / "a.en"


def test_a_file_of_the_user_may_be_gzipped(local):
    (local / "a.en.gz").write_bytes(gzip.compress(CONTENT))
    assert _local(local) == local / "a.en.gz"


def test_a_file_of_the_user_may_be_in_parts_or_another_packing(local):
    (local / "a.tar.gz.01").write_bytes(CONTENT[70:])
    (local / "a.tar.gz.00").write_bytes(CONTENT[:70])
    path = _local(local, "a.tar.gz")
    assert path == local.parent / "cache" / "a.tar.gz"
    assert path.read_bytes() == CONTENT
    (local / "b.zip").write_bytes(CONTENT)
    files = {"a.tgz": SourceFile(otherwise="b.zip"), "b.zip": SourceFile()}
    assert obtain("a.tgz", files, (), Store(local.parent / "cache", local)) == local / "b.zip"


def test_parts_are_joined_again_when_one_has_changed(local):
    (local / "a.zip.00").write_bytes(CONTENT)
    joined = _local(local, "a.zip")
    before = joined.stat().st_ino
    assert _local(local, "a.zip").stat().st_ino == before
    (local / "a.zip.01").write_bytes(b"more")
    assert _local(local, "a.zip").read_bytes() == CONTENT + b"more"


def test_a_missing_file_names_all_it_could_be(local):
    files = {"a.tgz": SourceFile(otherwise="b.zip"), "b.zip": SourceFile()}
    with pytest.raises(ConfigurationError, match=r"--local .*local: a\.tgz or b\.zip is missing"):
        obtain("a.tgz", files, (), Store(local.parent / "cache", local))


def test_another_version_is_used_and_reported_as_not_the_published_one(local, capsys):
    (local / "a.en").write_bytes(CONTENT)
    published = SourceFile(checksum=hashlib.sha256(CONTENT).hexdigest())
    assert obtain("a.en", {"a.en": published}, (), Store(local, local)) == local / "a.en"
    assert "note:" not in capsys.readouterr().err
    (local / "a.en").write_bytes(b"own")
    assert obtain("a.en", {"a.en": published}, (), Store(local, local)) == local / "a.en"
    assert "is not the published file" in capsys.readouterr().err


def test_the_users_mirror_is_asked_before_the_recipes_addresses(server, tmp_path):
    server.files["a.en"] = CONTENT
    files = {"a.en": SourceFile(urls=(f"{server.address}/moved/a.en",))}
    store = Store(tmp_path, mirrors=[f"{server.address}/absent", f"{server.address}/good/"])
    assert obtain("a.en", files, (), store).read_bytes() == CONTENT
    assert server.asked == {"absent": 1, "good": 1}


def test_the_cache_makes_no_request_and_replaces_damaged_files(server, tmp_path):
    server.files["a.en"] = CONTENT
    files = {"a.en": SourceFile(checksum=hashlib.sha256(CONTENT).hexdigest())}
    mirrors = [f"{server.address}/good"]
    path = obtain("a.en", files, mirrors, Store(tmp_path))
    obtain("a.en", files, mirrors, Store(tmp_path))
    assert server.asked == {"good": 1}
    path.write_bytes(CONTENT[:-1])
    assert obtain("a.en", files, mirrors, Store(tmp_path)).read_bytes() == CONTENT


@pytest.mark.parametrize("checksum", [hashlib.sha256(CONTENT).hexdigest(), ""])
def test_offline_uses_the_cache_and_makes_no_request(server, tmp_path, checksum):
    files = {"a.en": SourceFile(checksum=checksum)}
    store = Store(tmp_path, offline=True, mirrors=[f"{server.address}/good"])
    with pytest.raises(ConfigurationError, match=r"--offline: .*a\.en is missing: .* --local"):
        obtain("a.en", files, (), store)
    (tmp_path / "a.en").write_bytes(CONTENT)
    assert obtain("a.en", files, (), store) == tmp_path / "a.en"
    if checksum:
        (tmp_path / "a.en").write_bytes(b"damaged")
        with pytest.raises(ConfigurationError, match=r"--offline: .*a\.en is damaged"):
            obtain("a.en", files, (), store)
    assert not server.asked


def test_another_packing_is_fetched_when_the_first_is_unavailable(
    server, run, tmp_path, no_fairseq
):
    files = MINIATURES["iwslt15_en_vi"]()
    for stem, name in (("train", "train"), ("tst2012", "dev-2012"), ("tst2013", "test-2013")):
        members = {f"{stem}.{side}": files[f"{stem}.{side}"] for side in ("en", "vi")}
        server.files[f"{name}-en-vi.tgz"] = tgz(members)
    recipe = recipe_for("iwslt15_en_vi", {}, tmp_path)
    text = recipe.read_text(encoding="utf-8").replace("https://nlp.", f"{server.address}/absent/")
    recipe.write_text(text.replace("https://", f"{server.address}/good/x/"), encoding="utf-8")
    mirror = f"{server.address}/good"
    status, printed = run(recipe, "--mirror", mirror, "--output", tmp_path / "out")
    assert status == 0, printed
    expected = files["tst2013.vi"].replace(b"&amp;", b"&")
    assert (tmp_path / "out" / "raw" / "test.vi").read_bytes() == expected
    assert server.asked["good"] == 3 + 3  # the plain file of each split, then its archive
    # The packing in the cache is used, although the first one is available again.
    server.files.update(files)
    server.asked.clear()
    assert run(recipe, "--mirror", mirror, "--output", tmp_path / "out")[0] == 0
    assert not server.asked


def test_an_unavailable_source_lists_every_address_of_every_packing(server, run, tmp_path):
    recipe = recipe_for("iwslt15_en_vi", {}, tmp_path)
    text = recipe.read_text(encoding="utf-8")
    for host in ("nlp.stanford.edu", "github.com", "raw.githubusercontent.com"):
        text = text.replace(f"https://{host}", f"{server.address}/absent/{host}")
    recipe.write_text(text, encoding="utf-8")
    mirror = f"{server.address}/absent/mine"
    status, printed = run(recipe, "--mirror", mirror, "--output", tmp_path / "out")
    assert status == 1
    last = printed.splitlines()[-1]
    assert last.startswith("error: train.en could not be fetched: tried ")
    tried = [f"{mirror}/train.en", "nlp.stanford.edu", f"{mirror}/train-en-vi.tgz"]
    tried += ["absent/github.com", "absent/raw.githubusercontent.com"]
    for address in tried:
        assert address in last
    assert "--local" in last
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [
        tmp_path / "out" / ".lock"
    ]


def test_an_unavailable_training_corpus_may_be_left_out(run, tmp_path, local):
    recipe = recipe_for("wmt17_zh_en", {}, tmp_path)
    status, printed = run(recipe, "--local", local, "--output", tmp_path / "out")
    assert status == 2
    assert "leave out a training corpus: --corpora with some of cwmt, news-comm" in printed


def test_the_manifest_records_what_was_fetched_and_why_it_is_trusted(
    server, run, tmp_path, no_fairseq
):
    files = MINIATURES["wmt14_en_de"]()
    server.files.update(files)
    recipe = recipe_for("wmt14_en_de", files, tmp_path)
    arguments = (recipe, "--mirror", f"{server.address}/good", "--output", tmp_path / "out")
    assert run(*arguments)[0] == 0
    recorded = json.loads((tmp_path / "out" / "manifest.json").read_text())["sources"]
    assert recorded == {
        name: {
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "trusted": "by the recipe's checksum",
        }
        for name, content in files.items()
    }


def test_a_mirror_must_be_a_url(run, tmp_path):
    status, printed = run("multi30k", "--output", tmp_path, "--mirror", "/some/folder")
    assert status == 2
    assert "'/some/folder': give the http:// or https:// URL" in printed


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("multi30k", ["--offline"], "nothing is fetched with --local or --offline"),
        ("multi30k", ["--local", "."], "nothing is fetched with --local or --offline"),
        ("catalogues", [], "catalogues come in wheels, which pip fetches"),
    ],
)
def test_a_mirror_that_would_never_be_asked_is_refused(run, tmp_path, recipe, options, message):
    mirror = "http://127.0.0.1:9"
    status, printed = run(recipe, "--output", tmp_path / "out", "--mirror", mirror, *options)
    assert status == 2
    assert printed.splitlines()[-1].startswith(f"error: --mirror {mirror}: ")
    assert message in printed.splitlines()[-1]
