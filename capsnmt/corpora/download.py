"""Published files over HTTP, by pooch: retried, resumed, checked, and whole or not there."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import pooch
import requests

from capsnmt.corpora.archive import check_complete
from capsnmt.corpora.checksums import has_checksum
from capsnmt.corpora.console import say
from capsnmt.corpora.resume import NotThereError, ResumingDownloader
from capsnmt.errors import ConfigurationError
from capsnmt.files import BLOCK, publish, remove

RETRIES = 2  # pooch waits 1 s, 2 s, ... between them
INCOMING = "incoming.part"


class UnavailableError(Exception):
    """No address gives the file; `answers` says what each one answered."""

    def __init__(self, answers: list[str]):
        super().__init__("; ".join(answers))
        self.answers = answers


def download(name: str, expected: str, addresses: Sequence[Sequence[str]], folder: Path) -> Path:
    """Return ``folder/name``, fetched from the first address that gives the right file.

    What a cut connection or a killed run has of it stays in ``folder/incoming.part``, and the next
    call asks for the rest only.

    Args:
        name: the file's name.
        expected: its SHA-256 or ``md5:`` and its MD5. Empty where it is not known: then the file
            must be an archive or gzip file that can be read to its end, or not a web page.
        addresses: tried in order; each is one URL, or those of the parts that make the file.
        folder: the cache.

    Raises:
        UnavailableError: no address gives the file.
    """
    # pooch's temporary files stay in a folder of their own, which a killed run may leave behind.
    incoming = folder / INCOMING
    incoming.mkdir(parents=True, exist_ok=True)
    for left in incoming.iterdir():
        if left.name.startswith("tmp"):
            remove(left)
    pooch.get_logger().setLevel(logging.ERROR)
    answers = []
    for urls in addresses:
        try:
            whole = _fetch(name, expected, urls, incoming)
        except _RefusedError as refused:
            answers.append(str(refused))
        else:
            publish(whole, folder / name)
            shutil.rmtree(incoming)
            return folder / name
    if not any(incoming.iterdir()):
        incoming.rmdir()
    raise UnavailableError(answers)


class _RefusedError(Exception):
    """One address does not give the file."""


def _fetch(name: str, expected: str, urls: Sequence[str], incoming: Path) -> Path:
    """Return the checked file, in `incoming`."""
    if len(urls) == 1:
        whole = _get(name, expected, urls[0], incoming)
    else:
        parts = [_get(f"{name}.{n:02d}", "", url, incoming) for n, url in enumerate(urls)]
        whole = incoming / name
        with whole.open("wb") as stream:
            for part in parts:
                with part.open("rb") as content:
                    shutil.copyfileobj(content, stream, BLOCK)
                part.unlink()
        if expected and not has_checksum(whole, expected):
            whole.unlink()
            raise _RefusedError(f"{urls[0]} ... ({_differs(expected)})")
    if not expected:
        try:
            check_complete(whole)
        except ConfigurationError as error:
            whole.unlink()
            raise _RefusedError(f"{urls[0]} ({str(error).replace(f'{whole}: ', '')})") from None
    return whole


def _differs(expected: str) -> str:
    return f"its checksum is not {expected}"


def _get(name: str, expected: str, url: str, incoming: Path) -> Path:
    """Return the file at `url`, in `incoming`; a part that has arrived is not asked for again."""
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
