from __future__ import annotations

import hashlib
import http.server
import threading
from collections import Counter

import pytest

from data_prep import download as module
from data_prep.download import download
from data_prep.errors import PreparationError

CONTENT = b"corpus " * 1000
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Mirrors of every kind; the first folder of the path says which."""

    def do_GET(self):
        kind = self.path.split("/")[1]
        self.server.asked[kind] += 1
        flaky = kind == "flaky" and self.server.asked[kind] == 1
        if kind == "absent" or flaky:
            self.send_error(404 if kind == "absent" else 503)
            return
        if kind == "moved":
            self.send_response(302)
            self.send_header("Location", self.path.replace("/moved/", "/good/"))
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        content = {"cut": CONTENT[:3000], "other": CONTENT[::-1]}.get(kind, CONTENT)
        self.wfile.write(content)

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = Counter()
        server.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def _fetch(server, folder, *kinds, offline=False):
    mirrors = [f"{server.address}/{kind}" for kind in kinds]
    return download("train.en.gz", CHECKSUM, mirrors, folder, offline)


@pytest.mark.parametrize("kind", ["good", "moved", "flaky"])
def test_a_file_arrives_whole_and_alone(server, tmp_path, kind):
    path = _fetch(server, tmp_path, kind)
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]


def test_a_whole_file_is_not_fetched_again_but_a_damaged_one_is(server, tmp_path):
    path = _fetch(server, tmp_path, "good")
    _fetch(server, tmp_path, "good")
    assert server.asked["good"] == 1
    path.write_bytes(CONTENT[:-1])
    assert _fetch(server, tmp_path, "good").read_bytes() == CONTENT
    assert server.asked["good"] == 2


@pytest.mark.parametrize("bad", ["absent", "cut", "other"])
def test_the_next_mirror_is_tried(server, tmp_path, bad):
    assert _fetch(server, tmp_path, bad, "good").read_bytes() == CONTENT
    # Every mirror gets its retries before the next one's turn.
    assert server.asked == {bad: 1 + module.RETRIES, "good": 1}


def test_failure_names_every_mirror_with_its_answer_and_leaves_nothing(server, tmp_path):
    with pytest.raises(PreparationError) as error:
        _fetch(server, tmp_path, "absent", "cut", "other")
    message = str(error.value)
    assert "\n" not in message
    assert f"{server.address}/absent/train.en.gz (HTTP status 404)" in message
    assert f"{server.address}/cut/train.en.gz (ChunkedEncodingError)" in message
    assert f"{server.address}/other/train.en.gz (SHA-256 is not {CHECKSUM})" in message
    assert "--data" in message
    assert list(tmp_path.iterdir()) == []


def test_nobody_listening_is_one_line(tmp_path, server):
    server.shutdown()
    server.server_close()
    with pytest.raises(PreparationError, match=r"good/train\.en\.gz \(ConnectionError\)"):
        _fetch(server, tmp_path, "good")


def test_offline_uses_the_cache_and_asks_nobody(server, tmp_path):
    with pytest.raises(PreparationError, match=r"--offline: .*train\.en\.gz is missing"):
        _fetch(server, tmp_path, "good", offline=True)
    path = tmp_path / "train.en.gz"
    path.write_bytes(b"damaged")
    with pytest.raises(PreparationError, match=r"--offline: .*train\.en\.gz is damaged"):
        _fetch(server, tmp_path, "good", offline=True)
    path.write_bytes(CONTENT)
    assert _fetch(server, tmp_path, "good", offline=True) == path
    assert not server.asked


def test_what_a_killed_run_left_behind_is_swept_away(server, tmp_path):
    (tmp_path / "incoming.part").mkdir()
    (tmp_path / "incoming.part" / "tmp1234").write_bytes(CONTENT[:10])
    path = _fetch(server, tmp_path, "good")
    assert list(tmp_path.iterdir()) == [path]
