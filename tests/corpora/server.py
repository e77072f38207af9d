"""An HTTP server on loopback, with mirrors of every kind."""

import http.server
import threading
from collections import Counter
from contextlib import contextmanager
from typing import Counter as Counts
from typing import Dict, Iterator, List, Optional


class Server(http.server.ThreadingHTTPServer):
    """Files by their names; requests are counted by the kind of mirror, and their ranges kept."""

    def __init__(self, files: Dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.version = files, "1"  # for ``If-Range``
        self.asked: Counts[str] = Counter()
        self.ranges: List[Optional[str]] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Mirrors of ``server.files``; the first folder of a path selects the behaviour."""

    def do_GET(self):
        kind, name = self.path.lstrip("/").split("/", 1)
        self.server.asked[kind] += 1
        self.server.ranges.append(self.headers.get("Range"))
        content = self.server.files.get(name)
        flaky = kind == "flaky" and self.server.asked[kind] == 1
        if kind == "absent" or content is None or flaky:
            self.send_error(503 if flaky else 404)
            return
        if kind == "moved":
            self.send_response(302)
            self.send_header("Location", self.path.replace("/moved/", "/good/"))
            self.end_headers()
            return
        changes = {"other": content[::-1], "page": b"\n<!DOCTYPE html><p>Quota exceeded"}
        content = changes.get(kind, content)
        # A mirror that can resume sends the version of the file; "plain" ones do not.
        start = 0
        validator = f'"{self.server.version}"'
        if kind in {"resumes", "cut-resumes"} and self.headers.get("If-Range") == validator:
            start = int(self.headers["Range"].split("=")[1].rstrip("-"))
        self.send_response(206 if start else 200)
        if kind in {"resumes", "cut-resumes"}:
            self.send_header("ETag", validator)
        if kind == "encoded":
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = kind == "cut" or (kind == "cut-resumes" and self.server.asked[kind] == 1)
        self.wfile.write(content[start : len(content) // 2] if cut else content[start:])

    def log_message(self, *args):
        pass


@contextmanager
def serving(files: Dict[str, bytes]) -> Iterator[Server]:
    with Server(files) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
