from __future__ import annotations

import gzip
import hashlib
import io
import tarfile

import pytest

from capsnmt.corpora import download as module
from capsnmt.corpora.download import INCOMING, UnavailableError, download
from tests.corpora.server import serving

CONTENT = bytes(range(256)) * 4096
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()
NAME = "train.en"


def _archive() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        member = tarfile.TarInfo("a.en")
        member.size = len(CONTENT)
        tar.addfile(member, io.BytesIO(CONTENT))
    return stream.getvalue()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    archive = _archive()
    files = {NAME: CONTENT, f"{NAME}.00": CONTENT[:5000], f"{NAME}.01": CONTENT[5000:]}
    more = {"a.tgz": archive, "short.tgz": archive[:-20], "a.gz": gzip.compress(CONTENT)[:-4]}
    with serving({**files, **more}) as server:
        yield server


def _fetch(server, folder, *kinds, name=NAME, checksum=CHECKSUM):
    return download(name, checksum, [[f"{server.address}/{kind}/{name}"] for kind in kinds], folder)


@pytest.mark.parametrize("checksum", [CHECKSUM, f"md5:{hashlib.md5(CONTENT).hexdigest()}", ""])
@pytest.mark.parametrize("kind", ["good", "moved", "flaky"])
def test_a_download_leaves_only_the_complete_file(server, tmp_path, kind, checksum):
    path = _fetch(server, tmp_path, kind, checksum=checksum)
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("bad", "times"), [("absent", 1), ("cut", 1 + module.RETRIES), ("other", 1 + module.RETRIES)]
)
def test_the_next_mirror_is_tried_once_the_retries_are_used_up(server, tmp_path, bad, times):
    assert _fetch(server, tmp_path, bad, "good").read_bytes() == CONTENT
    assert server.asked == {bad: times, "good": 1}


def test_failure_names_every_mirror_with_its_answer_and_leaves_nothing(server, tmp_path):
    with pytest.raises(UnavailableError) as error:
        _fetch(server, tmp_path, "absent", "cut", "other")
    assert error.value.answers == [
        f"{server.address}/absent/{NAME} (HTTP status 404)",
        f"{server.address}/cut/{NAME} (ChunkedEncodingError)",
        f"{server.address}/other/{NAME} (its checksum is not {CHECKSUM})",
    ]
    assert list(tmp_path.iterdir()) == []


def test_nobody_listening_is_one_line(tmp_path, server):
    server.shutdown()
    server.server_close()
    with pytest.raises(UnavailableError, match=r"good/train\.en \(ConnectionError\)"):
        _fetch(server, tmp_path, "good")


def test_a_cut_connection_is_resumed_where_it_broke(server, tmp_path):
    assert _fetch(server, tmp_path, "cut-resumes").read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={len(CONTENT) // 2}-"]


def _killed(server, folder, monkeypatch):
    """Leave the files of a run that was killed during the download."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "RETRIES", 0)
        with pytest.raises(UnavailableError):
            _fetch(server, folder, "cut-resumes")
    server.ranges.clear()
    arrived = folder / INCOMING / f"{NAME}.partial"
    assert arrived.stat().st_size == len(CONTENT) // 2
    return arrived


def test_a_later_run_resumes_too(server, tmp_path, monkeypatch):
    _killed(server, tmp_path, monkeypatch)
    path = _fetch(server, tmp_path, "cut-resumes")
    assert path.read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(CONTENT) // 2}-"]
    assert list(tmp_path.iterdir()) == [path]


def test_another_version_or_mirror_is_fetched_from_its_beginning(server, tmp_path, monkeypatch):
    _killed(server, tmp_path, monkeypatch)
    server.version = "2"
    assert _fetch(server, tmp_path, "cut-resumes").read_bytes() == CONTENT
    _killed_elsewhere = tmp_path / "elsewhere"
    server.asked.clear()
    _killed(server, _killed_elsewhere, monkeypatch)
    assert _fetch(server, _killed_elsewhere, "resumes").read_bytes() == CONTENT
    assert server.ranges == [None]


def test_a_partial_file_with_nothing_left_to_ask_for_starts_again(server, tmp_path, monkeypatch):
    _killed(server, tmp_path, monkeypatch).write_bytes(CONTENT[::-1])
    assert _fetch(server, tmp_path, "cut-resumes").read_bytes() == CONTENT


def test_the_remains_of_a_killed_run_are_removed(server, tmp_path):
    (tmp_path / INCOMING).mkdir()
    (tmp_path / INCOMING / "tmp1234").write_bytes(CONTENT[:10])
    path = _fetch(server, tmp_path, "good")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("checksum", [CHECKSUM, f"md5:{hashlib.md5(CONTENT).hexdigest()}", ""])
def test_parts_are_joined(server, tmp_path, checksum):
    parts = [f"{server.address}/good/{NAME}.{part:02d}" for part in range(2)]
    path = download(NAME, checksum, [parts], tmp_path)
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]


def test_parts_that_make_another_file_are_refused(server, tmp_path):
    parts = [f"{server.address}/good/{NAME}.{part:02d}" for part in (1, 0)]
    with pytest.raises(UnavailableError, match=f"checksum is not {CHECKSUM}"):
        download(NAME, CHECKSUM, [parts], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "name", "answer"),
    [
        ("page", "a.tgz", "a web page, not a.tgz"),
        ("good", "short.tgz", "a damaged archive"),
        ("good", "a.gz", "a damaged archive"),
        ("other", "a.tgz", "a damaged archive"),
    ],
)
def test_without_a_checksum_what_cannot_be_the_file_is_refused(
    server, tmp_path, kind, name, answer
):
    with pytest.raises(UnavailableError, match=answer):
        _fetch(server, tmp_path, kind, name=name, checksum="")
    assert list(tmp_path.iterdir()) == []
    assert _fetch(server, tmp_path, "page", "good", name="a.tgz", checksum="").is_file()
