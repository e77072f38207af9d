"""Where source files come from: the user's folder, mirrors, archives in place of files."""

import gzip
import hashlib
import json

import pytest

from tests.corpora.conftest import recipe_of, text, tree, write_recipe
from tests.corpora.miniatures import MINIATURES, recipe_for, tgz


@pytest.fixture
def prepare(run, corpus, tmp_path, no_fairseq, server, monkeypatch):
    """Prepare a corpus from mirrors of some kinds; the server has its files."""
    monkeypatch.setattr("capsnmt.corpora.sources.PIECE", 16)
    recipe = recipe_of(corpus)
    server.files.update({path.name: path.read_bytes() for path in corpus.iterdir()})

    def prepare(*kinds, ends=0, **sources):
        recipe["files"].update(sources)
        path = write_recipe(tmp_path / "tiny.yaml", recipe)
        mirrors = [word for kind in kinds for word in ("--mirror", f"{server.address}/{kind}")]
        return run(path, *mirrors, "--output", tmp_path / "out", ends=ends)

    return prepare


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        *((kind, "sha256") for kind in ("good", "moved", "flaky", "resumes", "cut-resumes")),
        *(("good", "md5"), ("cut-resumes", "md5"), ("good", ""), ("cut-resumes", "")),
    ],
)
def test_a_download_leaves_only_complete_files(prepare, server, corpus, tmp_path, kind, known):
    checksums = {}
    for path in corpus.iterdir():
        digest = hashlib.new(known or "md5", path.read_bytes()).hexdigest()
        checksum = {"sha256": digest, "md5": f"md5:{digest}", "": ""}[known]
        checksums[path.name] = {"checksum": checksum}
    prepare(kind, **checksums)
    sources = tmp_path / "out" / "sources"
    assert tree(sources) == {path.name: path.read_bytes() for path in corpus.iterdir()}
    assert len(list(sources.iterdir())) == 6
    recorded = json.loads((tmp_path / "out/manifest.json").read_text())["sources"]
    assert recorded["test.de"] == hashlib.sha256(server.files["test.de"]).hexdigest()
    if kind == "cut-resumes":
        assert server.ranges[:2] == [None, f"bytes={len(server.files['train.en']) // 2}-"]


@pytest.mark.parametrize(("bad", "times"), [("absent", 1), ("cut", 3), ("other", 1)])
def test_the_next_mirror_is_tried(prepare, server, bad, times):
    prepare(bad, "good")
    assert server.asked == {bad: 6 * times, "good": 6}


def test_a_failure_names_every_address_and_leaves_nothing(prepare, server, tmp_path):
    known = hashlib.sha256(server.files["train.en"]).hexdigest()
    no_host = {"urls": ["http://a..b/x"], "checksum": known}
    printed = prepare("absent", "cut", "other", ends=1, **{"train.en": no_host})
    error = printed.splitlines()[-1]
    assert error.startswith("error: train.en could not be fetched: tried ")
    for answer in (
        f"{server.address}/absent/train.en (HTTP status 404)",
        f"{server.address}/cut/train.en (ChunkedEncodingError)",
        f"{server.address}/other/train.en (its checksum is not ",
        "http://a..b/x (LocationParseError)",
    ):
        assert answer in error
    assert "--local" in error
    assert [path.name for path in (tmp_path / "out").rglob("*")] == [".lock", "sources"]
    server.shutdown()
    server.server_close()
    assert "(ConnectionError)" in prepare("good", ends=1)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_later_run_resumes_unless_the_version_is_another(
    prepare, server, tmp_path, monkeypatch, version
):
    with monkeypatch.context() as patch:
        patch.setattr("capsnmt.corpora.sources.ATTEMPTS", 1)  # killed in the transfer
        prepare("cut-resumes", ends=1)
    server.ranges.clear()
    server.version = version
    prepare("cut-resumes")
    assert server.ranges[0] == f"bytes={len(server.files['train.en']) // 2}-"
    made = tmp_path / "out" / "sources" / "train.en"
    assert made.read_bytes() == server.files["train.en"]


def test_a_short_answer_is_noticed_where_the_library_is_silent(prepare, server, monkeypatch):
    silent = property(lambda response: False, lambda response, value: None)  # as in urllib3 1
    monkeypatch.setattr("urllib3.HTTPResponse.enforce_content_length", silent, raising=False)
    assert f"{server.address}/cut/train.en (ConnectionError)" in prepare("cut", ends=1)
    prepare("cut-resumes")


@pytest.mark.parametrize("parts", [1, 2])
def test_what_has_arrived_outlives_a_kill_while_it_is_checked(prepare, server, monkeypatch, parts):
    def killed(path, expected):
        raise KeyboardInterrupt

    content = server.files["train.en"]
    checksum = hashlib.sha256(content).hexdigest()
    server.files.update({"train.0": content[:50], "train.1": content[50:]})
    if parts == 2:
        del server.files["train.en"]
    urls = [[f"{server.address}/good/train.{part}" for part in range(2)]]
    source = {"train.en": {"urls": urls, "checksum": checksum}}
    with monkeypatch.context() as patch:
        patch.setattr("capsnmt.corpora.sources.has_checksum", killed)
        prepare("good", **source, ends=130)
    server.asked.clear()
    prepare("good", **source)
    # the five others, and once more the mirror that lacks it
    assert server.asked == {"good": 5 + (parts == 2)}


def test_parts_are_joined(prepare, server):
    content = server.files.pop("train.en")
    server.files.update({"train.en.0": content[:50], "train.en.1": content[50:]})
    parts = [f"{server.address}/good/train.en.{part}" for part in range(2)]
    checksum = hashlib.sha256(content).hexdigest()
    source = {"urls": [parts[::-1]], "checksum": checksum}
    printed = prepare("good", **{"train.en": source}, ends=1)
    assert f"train.en.1 ... (its checksum is not {checksum})" in printed
    source["urls"].append(parts)
    prepare("good", **{"train.en": source})
    source["urls"] = ["http://127.0.0.1:9/moved"]  # an address makes no other recipe
    assert prepare("good", **{"train.en": source}).startswith("data-bin: ")
    source["checksum"] = hashlib.sha256(b"its next version").hexdigest()
    assert "(the checksum of train.en differs)" in prepare("good", **{"train.en": source}, ends=2)


@pytest.mark.parametrize("kind", ["page", "short"])
def test_without_a_checksum_what_cannot_be_the_file_is_refused(prepare, server, kind):
    server.files["train.en"] = gzip.compress(server.files["train.en"])[:-4]
    printed = prepare("page" if kind == "page" else "good", **{"train.en": {}}, ends=1)
    assert ("(a web page)" if kind == "page" else "a damaged archive") in printed


def test_an_archive_takes_the_place_of_a_file(run, server, tmp_path, no_fairseq):
    files = MINIATURES["iwslt15_en_vi"]()
    for stem, name in (("train", "train"), ("tst2012", "dev-2012"), ("tst2013", "test-2013")):
        members = {f"{stem}.{side}": files[f"{stem}.{side}"] for side in ("en", "vi")}
        server.files[f"{name}-en-vi.tgz"] = tgz(members)
    recipe = recipe_for("iwslt15_en_vi", {}, tmp_path)
    words = recipe.read_text("utf-8").replace("https://nlp.", f"{server.address}/absent/")
    for host in ("github.com/stefan-it/nmt-en-vi/raw/master/data", "raw.githubusercontent.com"):
        words = words.replace(f"https://{host}", f"{server.address}/good")
    recipe.write_text(words, "utf-8")
    run(recipe, "--output", tmp_path / "out")
    expected = files["tst2013.vi"].replace(b"&amp;", b"&")
    assert (tmp_path / "out" / "raw" / "test.vi").read_bytes() == expected


def test_a_gzip_file_stays_packed_where_a_server_calls_it_encoded(prepare, server, tmp_path):
    """As Apache's AddEncoding does, and what guesses types from names."""
    packed = server.files["train.tgz"] = tgz({"train.en": server.files.pop("train.en")})
    url, checksum = f"{server.address}/encoded/train.tgz", hashlib.sha256(packed).hexdigest()
    prepare("good", **{"train.en": {"urls": [url], "checksum": checksum}})
    assert (tmp_path / "out/sources/train.en").read_bytes() == packed


def test_files_of_the_user_are_used_in_place(
    run, refuse, corpus, recipe_file, tmp_path, no_fairseq
):
    for path in list(corpus.iterdir()):
        if path.name != "test.en":
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    given = (recipe_file, "--local", corpus, "--output", tmp_path / "out")
    refuse(given, "test.en or test.en.gz is missing; put it there")
    (corpus / "test.en").write_bytes(b"Other .\n" * 4)
    (corpus / "val.en.gz").write_bytes(gzip.compress(b"Other .\n" * 8))
    printed = run(*given)
    assert printed.count("note: ") == 2
    for name in ("test.en", "val.en.gz"):
        assert f"{corpus / name} is not the published file" in printed
    assert text(tmp_path / "out/raw/test.en") == ["Other ."] * 4
    assert not (tmp_path / "out/sources").exists()
    for side in ("en", "de"):
        (corpus / f"train.{side}.gz").unlink()
        (corpus / f"train.{side}").touch()
    refuse([*given[:-1], tmp_path / "empty"], "train.en and train.de are empty; give other files")


def test_an_unavailable_training_corpus_may_be_left_out(run, server, tmp_path, no_fairseq):
    files = MINIATURES["wmt17_zh_en"]()
    recipe = recipe_for("wmt17_zh_en", files, tmp_path)
    words = recipe.read_text("utf-8")
    recipe.write_text(words.replace("https://", f"{server.address}/absent/"), "utf-8")
    printed = run(recipe, "--output", tmp_path / "out", ends=1)
    assert "leave out a training corpus: --corpora with some of news-commentary-v12, un" in printed
    server.files.update(files)
    mirror, chosen = f"{server.address}/good/", ("--corpora", "news-commentary-v12")
    run(recipe, "--mirror", mirror, *chosen, "--output", tmp_path / "out")
    assert len(text(tmp_path / "out/raw/train.zh")) == 20
    assert not list((tmp_path / "out/sources").glob("UN*"))
