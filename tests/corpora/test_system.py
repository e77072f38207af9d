"""The real command line on real data, fairseq-preprocess included."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.corpora.conftest import binarise_by_fork
from tests.corpora.miniatures import SPLITS, recipe_for, wmt17_zh_en
from tests.real_data import real_data

ROOT = Path(__file__).resolve().parents[2]
HEAD = {"train": 300, "val": 40, "test_2016_flickr": 30, "test_2017_flickr": 20}

pytestmark = pytest.mark.system


@pytest.fixture
def head(multi30k, tmp_path) -> Path:
    """The first lines of Multi30k, in plain text."""
    folder = tmp_path / "head"
    folder.mkdir()
    for stem, lines in HEAD.items():
        for language in ("en", "de"):
            with gzip.open(multi30k / f"{stem}.{language}.gz", "rb") as stream:
                (folder / f"{stem}.{language}").write_bytes(b"".join(islice(stream, lines)))
    return folder


def test_segmented_text_is_taken_as_it_was_published(run, tmp_path, no_fairseq):
    published = real_data("multi30k_lowercase")
    local, output = tmp_path / "local", tmp_path / "output"
    local.mkdir()
    (local / "code.gz").write_bytes((published / "code.gz").read_bytes())
    splits = {"train": "train", "valid": "valid"}
    splits |= {f"test_{year}_flickr": f"test.{year}" for year in (2016, 2017)}
    for stem in splits.values():
        for language in ("en", "de"):
            with gzip.open(published / f"{stem}.{language}.gz", "rb") as stream:
                (local / f"{stem}.{language}").write_bytes(b"".join(islice(stream, 200)))
    status, printed = run("multi30k_lowercase", "--local", local, "--output", output)
    assert status == 0, printed
    for split, stem in splits.items():
        for language in ("en", "de"):
            segmented = (local / f"{stem}.{language}").read_text("utf-8")
            assert (output / "bpe" / f"{split}.{language}").read_text("utf-8") == segmented
            words = (output / "raw" / f"{split}.{language}").read_text("utf-8")
            assert words == segmented.replace("@@ ", "")
    with gzip.open(published / "code.gz", "rb") as stream:
        assert (output / "bpe" / "codes").read_bytes() == stream.read()


def _sentences(index: Path) -> int:
    """The number of sentences, from the header of fairseq's ``.idx``."""
    magic, version, _, sentences = struct.unpack("<9sQBQ", index.read_bytes()[:26])
    assert (magic, version) == (b"MMIDIDX\x00\x00", 1)
    return sentences


@pytest.mark.one_host
@pytest.mark.nightly  # with every commit the demo and scripts/kill_test.sh prepare a corpus
def test_multi30k_to_data_bin(head, tmp_path):
    output = tmp_path / "output"
    script = ROOT / "data_prep" / "multi30k.sh"
    command = ["bash", script, "--local", head, "--output", output, "--workers", "2"]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        command, env=environment, cwd=head, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    subsets = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    for subset, stem in {**subsets, "test1": "test_2017_flickr"}.items():
        for language in ("en", "de"):
            index = output / "bin" / f"{subset}.en-de.{language}.idx"
            assert _sentences(index) == HEAD[stem]
    dictionaries = [(output / "bin" / f"dict.{side}.txt").read_bytes() for side in ("en", "de")]
    assert dictionaries[0] == dictionaries[1]
    reference = output / "raw" / "test_2016_flickr.de"
    assert reference.read_bytes() == (head / "test_2016_flickr.de").read_bytes()
    manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["subsets"]["test_2017_flickr"] == "test1"


@pytest.mark.nightly  # test_chains prepares these archives, and the demo binarises
def test_wmt17_in_parts_and_zips_to_a_data_bin_with_two_dictionaries(tmp_path, run, monkeypatch):
    for name, content in wmt17_zh_en().items():
        (tmp_path / name).write_bytes(content)
    recipe = recipe_for("wmt17_zh_en", {}, tmp_path)
    monkeypatch.setattr("capsnmt.corpora.steps.binarise", binarise_by_fork)
    status, printed = run(recipe, "--local", tmp_path, "--output", tmp_path / "out")
    assert status == 0, printed
    made = tmp_path / "out" / "bin"
    for split, numbers in SPLITS["wmt17_zh_en"].items():
        for language in ("zh", "en"):
            index = made / f"{split}.zh-en.{language}.idx"
            assert _sentences(index) == len(list(numbers))
    words = {side: (made / f"dict.{side}.txt").read_text(encoding="utf-8") for side in ("zh", "en")}
    assert "房子" in words["zh"]  # a word of jieba's
    assert "房子" not in words["en"]
    assert (tmp_path / "out" / "bpe" / "codes.zh").is_file()


def test_a_failing_fairseq_preprocess_is_one_line(tmp_path):
    from capsnmt.cli import ExecutionError
    from capsnmt.corpora.binarise import binarise, binarise_command

    command = binarise_command(
        dict.fromkeys(("train", "valid", "test"), tmp_path), ("en", "de"), tmp_path, 1
    )
    command[1:3] = ["-c", "import sys; sys.exit('some trouble\\nthe last line')"]
    with pytest.raises(ExecutionError, match="ended with 1: the last line"):
        binarise(command, tmp_path)


def test_the_recipe_knows_the_published_files(multi30k):
    from capsnmt.checksums import has_checksum
    from capsnmt.corpora.recipe import load_recipe

    files = load_recipe("multi30k").corpus.files
    assert all(has_checksum(multi30k / name, file.checksum) for name, file in files.items())
