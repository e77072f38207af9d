"""HTTP downloads that go on where a cut connection or a killed run left them."""

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
BLOCK = 1 << 16  # what a cut connection loses at most


class NotThereError(Exception):
    """The server has understood and refuses; asking again is of no use, so pooch must not."""

    def __init__(self, status: int):
        super().__init__(f"HTTP status {status}")


class ResumingDownloader:
    """A downloader for pooch, which has none that resumes.

    What has arrived lies in `partial`, and beside it what the server says identifies the version
    of the file. The rest is asked for with ``Range`` and ``If-Range`` (RFC 9110, sections 13.1.5
    and 14.2): a server that cannot continue that version sends the whole file.
    """

    def __init__(self, partial: Path):
        self.partial = partial
        self.about = partial.with_name(f"{partial.name}.json")

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Put the file at `url` in the place of `output_file`; `pooch` is not used.

        Raises:
            NotThereError: the server will never give the file.
            requests.RequestException: as requests does; what has arrived is kept.
        """
        start, validator = self._resumable(url)
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers.update({"Range": f"bytes={start}-", "If-Range": validator})
        timeout = (SECONDS_WITHOUT_DATA, SECONDS_WITHOUT_DATA)
        with requests.get(url, headers=headers, stream=True, timeout=timeout) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                remove(self.partial)  # nothing is left to ask for: the retry starts anew
            elif response.status_code in NOT_THERE:
                raise NotThereError(response.status_code)
            response.raise_for_status()
            if response.status_code != requests.codes.partial_content:
                start = 0
                remove(self.partial)  # before the server's word on the new version is written
            self._remember(url, response)
            length = response.headers.get("Content-Length", "")
            total = start + int(length) if length.isdecimal() else None
            with self.partial.open("ab" if start else "wb") as stream:
                for block in watched_bytes(response.iter_content(BLOCK), start, total):
                    stream.write(block)
        os.replace(self.partial, output_file)
        self.about.unlink()

    def _resumable(self, url: str) -> tuple[int, str]:
        """Return how many bytes are here of which version of the file at `url`."""
        try:
            about = json.loads(self.about.read_text(encoding="utf-8"))
            if about["url"] == url and about["validator"]:
                return self.partial.stat().st_size, about["validator"]
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return 0, ""

    def _remember(self, url: str, response: requests.Response) -> None:
        # A weak ETag names what is equal enough for readers, not for the bytes of a range.
        validator = response.headers.get("ETag", "")
        if not validator or validator.startswith("W/"):
            validator = response.headers.get("Last-Modified", "")
        part = temporary_path(self.about)
        part.write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")
        os.replace(part, self.about)

    def discard_unless_resumable(self, url: str) -> None:
        """Remove what has arrived if the rest of it cannot be had from `url`."""
        if not self._resumable(url)[0]:
            remove(self.partial)
            remove(self.about)
