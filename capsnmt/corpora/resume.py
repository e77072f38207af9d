"""HTTP downloads that resume after a cut connection or a kill."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import requests

from capsnmt.corpora.console import watched_bytes
from capsnmt.files import remove, temporary_path

SECONDS_WITHOUT_DATA = 30
NOT_THERE = {400, 401, 403, 404, 405, 410}
BLOCK = 1 << 16  # the most that a cut connection loses


class NotThereError(Exception):
    """The server refuses permanently, so pooch must not retry."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP status {status}")


class ResumingDownloader:
    """A downloader for pooch, which has none that resumes.

    ``partial`` holds the bytes that have arrived, and a file next to it the server's identifier of
    the version. The rest is requested with ``Range`` and ``If-Range`` (RFC 9110, sections 13.1.5
    and 14.2): a server that cannot continue that version sends the complete file.
    """

    def __init__(self, partial: Path) -> None:
        self.partial = partial
        self.about = partial.with_name(f"{partial.name}.json")

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Fetch ``url`` to ``output_file``; ``pooch`` is not used.

        Raises:
            NotThereError: the server does not have the file.
            requests.RequestException: the transfer failed; the bytes that have arrived are kept.
        """
        start, validator = self._resumable(url)
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers.update({"Range": f"bytes={start}-", "If-Range": validator})
        timeout = (SECONDS_WITHOUT_DATA, SECONDS_WITHOUT_DATA)
        with requests.get(url, headers=headers, stream=True, timeout=timeout) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                remove(self.partial)  # the range is empty: the retry starts again
            elif response.status_code in NOT_THERE:
                raise NotThereError(response.status_code)
            response.raise_for_status()
            if response.status_code != requests.codes.partial_content:
                start = 0
                remove(self.partial)  # before the identifier of the new version is written
            self._remember(url, response)
            length = response.headers.get("Content-Length", "")
            total = start + int(length) if length.isdecimal() else None
            with self.partial.open("ab" if start else "wb") as stream:
                for block in watched_bytes(response.iter_content(BLOCK), start, total):
                    stream.write(block)
        os.replace(self.partial, output_file)
        self.about.unlink()

    def _resumable(self, url: str) -> tuple[int, str]:
        """Return the number of bytes that have arrived, and the version's identifier."""
        try:
            about = json.loads(self.about.read_text(encoding="utf-8"))
            if about["url"] == url and about["validator"]:
                return self.partial.stat().st_size, about["validator"]
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return 0, ""

    def _remember(self, url: str, response: requests.Response) -> None:
        # A weak ETag may stay the same when the bytes change.
        validator = response.headers.get("ETag", "")
        if not validator or validator.startswith("W/"):
            validator = response.headers.get("Last-Modified", "")
        part = temporary_path(self.about)
        part.write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")
        os.replace(part, self.about)

    def discard_unless_resumable(self, url: str) -> None:
        """Remove a partial download that cannot be resumed from ``url``."""
        if not self._resumable(url)[0]:
            remove(self.partial)
            remove(self.about)
