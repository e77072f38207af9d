"""Published files over HTTP, by pooch: retried, checked, and whole or not there."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pooch
import requests

from data_prep.errors import PreparationError
from data_prep.progress import say
from data_prep.sources import cached

RETRIES = 2  # pooch waits 1 s, 2 s, ... between them
SECONDS_WITHOUT_DATA = 30


def download(name: str, checksum: str, mirrors: Sequence[str], folder: Path, offline: bool) -> Path:
    """Return ``folder/name``, fetched from the first mirror that gives the right file.

    Args:
        name: the file's name below every mirror.
        checksum: its SHA-256; a file already in `folder` that has it is not fetched again.
        mirrors: addresses of folders, tried in order.
        folder: the cache.
        offline: use the cache only.

    Raises:
        PreparationError: no mirror gives the file, naming what each one answered; or it is not
            in the cache and `offline` is set.
    """
    path = folder / name
    if cached(path, checksum, offline):
        return path
    # pooch's temporary files stay in a folder of their own, which a killed run may leave behind.
    incoming = folder / "incoming.part"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    pooch.get_logger().setLevel(logging.ERROR)
    answers = []
    for mirror in mirrors:
        address = f"{mirror.rstrip('/')}/{name}"
        say(f"  fetch {address}")
        try:
            fetched = pooch.create(
                path=incoming,
                base_url=f"{mirror.rstrip('/')}/",
                registry={name: f"sha256:{checksum}"},
                retry_if_failed=RETRIES,
            ).fetch(
                name,
                downloader=pooch.HTTPDownloader(
                    progressbar=sys.stderr.isatty(), timeout=SECONDS_WITHOUT_DATA
                ),
            )
        except requests.HTTPError as error:
            status = error.response.status_code if error.response is not None else error
            answers.append(f"{address} (HTTP status {status})")
        except requests.RequestException as error:
            answers.append(f"{address} ({type(error).__name__})")
        except ValueError:
            answers.append(f"{address} (SHA-256 is not {checksum})")
        else:
            os.replace(fetched, path)
            shutil.rmtree(incoming)
            return path
    shutil.rmtree(incoming)
    raise PreparationError(
        f"{name} could not be fetched: tried {'; '.join(answers)}. "
        f"Fetch it by other means and give its folder with --data"
    )
