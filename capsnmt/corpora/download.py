"""Download published files with pooch: retried, resumed, checked, complete or absent."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pooch
import requests

from capsnmt.checksums import has_checksum
from capsnmt.cli import ConfigurationError
from capsnmt.corpora.archive import check_complete
from capsnmt.corpora.console import say
from capsnmt.corpora.resume import NotThereError, ResumingDownloader
from capsnmt.files import BLOCK, publish, remove

RETRIES = 2  # pooch waits 1 s, 2 s, ... between them
INCOMING = "incoming.part"


class UnavailableError(Exception):
    """No address provides the file; ``answers`` holds the answer of each."""

    def __init__(self, answers: list[str]) -> None:
        super().__init__("; ".join(answers))
        self.answers = answers


def download(name: str, expected: str, addresses: Sequence[Sequence[str]], folder: Path) -> Path:
    """Fetch a file from the first address that provides it; return ``folder/name``.

    A partial download stays in ``folder/incoming.part`` after a cut connection or a kill; the next
    call requests only the rest.

    Args:
        name: the file's name.
        expected: its SHA-256, or ``md5:`` and its MD5. If empty, an archive or gzip file must be
            readable to its end, and any other file must not be a web page.
        addresses: tried in order; each is one URL, or the URLs of the file's parts.
        folder: the cache.

    Raises:
        UnavailableError: no address provides the file.
    """
    # pooch's temporary files have their own folder, which a killed run may leave behind.
    incoming = folder / INCOMING
    incoming.mkdir(parents=True, exist_ok=True)
    for left in incoming.iterdir():
        if left.name.startswith("tmp"):
            remove(left)
    pooch.get_logger().setLevel(logging.ERROR)
    answers = []
    for urls in addresses:
        try:
            fetched = _fetch(name, expected, urls, incoming)
        except _RefusedError as refused:
            answers.append(str(refused))
        else:
            publish(fetched, folder / name)
            shutil.rmtree(incoming)
            return folder / name
    if not any(incoming.iterdir()):
        incoming.rmdir()
    raise UnavailableError(answers)


class _RefusedError(Exception):
    """One address does not provide the file."""


def _fetch(name: str, expected: str, urls: Sequence[str], incoming: Path) -> Path:
    """Fetch the file to ``incoming`` and check it."""
    if len(urls) == 1:
        fetched = _get(name, expected, urls[0], incoming)
    else:
        parts = [_get(f"{name}.{n:02d}", "", url, incoming) for n, url in enumerate(urls)]
        fetched = incoming / name
        with fetched.open("wb") as stream:
            for part in parts:
                with part.open("rb") as content:
                    shutil.copyfileobj(content, stream, BLOCK)
                part.unlink()
        if expected and not has_checksum(fetched, expected):
            fetched.unlink()
            raise _RefusedError(f"{urls[0]} ... ({_differs(expected)})")
    if not expected:
        try:
            check_complete(fetched)
        except ConfigurationError as error:
            fetched.unlink()
            raise _RefusedError(f"{urls[0]} ({str(error).replace(f'{fetched}: ', '')})") from None
    return fetched


def _differs(expected: str) -> str:
    return f"its checksum is not {expected}"


def _get(name: str, expected: str, url: str, incoming: Path) -> Path:
    """Fetch a URL to ``incoming``; a part that has arrived is not requested again."""
    known = expected if ":" in expected or not expected else f"sha256:{expected}"
    say(f"  fetch {url}")
    downloader = ResumingDownloader(incoming / f"{name}.partial")
    try:
        fetched = pooch.create(
            path=incoming,
            base_url="",
            registry={name: known or None},
            urls={name: url},
            retry_if_failed=RETRIES,
        ).fetch(name, downloader=downloader)
        return Path(fetched)
    except NotThereError as error:
        raise _RefusedError(f"{url} ({error})") from None
    except requests.HTTPError as error:
        status = error.response.status_code if error.response is not None else error
        raise _RefusedError(f"{url} (HTTP status {status})") from None
    except requests.RequestException as error:
        raise _RefusedError(f"{url} ({type(error).__name__})") from None
    except ValueError:
        raise _RefusedError(f"{url} ({_differs(expected)})") from None
    finally:
        downloader.discard_unless_resumable(url)
