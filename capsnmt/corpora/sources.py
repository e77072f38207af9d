"""Source files: downloads that resume, are checked, and are complete or absent."""

import glob
import gzip
import hashlib
import os
import re
import shutil
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import List, NamedTuple, Sequence, Tuple

import requests
from tqdm import tqdm

from capsnmt.cli import ConfigurationError, ExecutionError, say
from capsnmt.corpora.archives import check_complete
from capsnmt.files import BLOCK, hexdigest

ATTEMPTS = 3
SECONDS_WITHOUT_DATA = 30
PIECE = 1 << 16  # the most bytes that a cut connection loses


class Address(NamedTuple):
    """Where a file may be: its URL, or those of its parts, and its checksum there, if known."""

    urls: Tuple[str, ...]
    checksum: str = ""


def in_folders(folders: Sequence[str], name: str, checksum: str = "") -> List[Address]:
    """Return the addresses of a file in folders on servers."""
    return [Address((f"{folder.rstrip('/')}/{name}",), checksum) for folder in folders]


def has_checksum(path: Path, expected: str, packed: bool = False) -> bool:
    """Return whether a file has the checksum ``expected``: a SHA-256, or ``md5:`` and an MD5.

    If it is ``packed``, that is the checksum of what gzip has packed in it.
    """
    algorithm, _, digest = expected.rpartition(":")
    with suppress(EOFError, gzip.BadGzipFile, zlib.error):  # damaged
        return hexdigest(path, algorithm or "sha256", gzip.open if packed else open) == digest
    return False


def local_file(folder: Path, name: str) -> Path:
    """Return the path of a file in the user's folder, plain or gzipped."""
    other = f"{name}.gz" if not name.endswith(".gz") else name[: -len(".gz")]
    for path in (folder / name, folder / other):
        if path.is_file():
            return path
    raise ConfigurationError(
        f"--local {folder}: {name} or {other} is missing; put it there, or leave out --local to "
        f"fetch what is missing"
    )


def download(path: Path, name: str, addresses: Sequence[Address], fix: str) -> None:
    """Fetch a file from the first address that provides it.

    What has arrived stays next to ``path`` after a cut connection or a kill; the next call requests
    only the rest.

    Without a checksum, an archive or gzip file must be readable to its end, and any other file must
    not be a web page. Errors call it ``name``, and say by ``fix`` what else the user can do.
    """
    answers = []
    for address in addresses:
        try:
            parts = [_fetch(url, path) for url in address.urls]
            # checked first: what has arrived outlives a kill in these minutes, and a full disk
            whole = parts[0] if len(parts) == 1 else _join(parts, path)
            try:
                _check(whole, address)
            except ExecutionError:
                for part in parts:
                    part.unlink()
                raise
            os.replace(whole, path)
            for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
                left.unlink()  # what had arrived from other addresses
            return
        except ExecutionError as refused:
            answers.append(str(refused))
    tried = f"tried {'; '.join(answers)}" if answers else "the recipe has no address of it"
    raise ExecutionError(f"{name} could not be fetched: {tried}; {fix}")


def _join(parts: Sequence[Path], path: Path) -> Path:
    with path.open("wb") as whole:
        for part in parts:
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, whole, BLOCK)
    return path


def _check(path: Path, address: Address) -> None:
    url = address.urls[0] + (" ..." if len(address.urls) > 1 else "")
    if address.checksum and not has_checksum(path, address.checksum):
        raise ExecutionError(f"{url} (its checksum is not {address.checksum})")
    if not address.checksum:
        try:
            check_complete(path)
        except ConfigurationError as error:
            raise ExecutionError(f"{url} ({str(error).replace(f'{path}: ', '')})") from None


def _fetch(url: str, path: Path) -> Path:
    whole = path.with_name(f".{path.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}")
    partial, version = (Path(f"{whole}.{name}") for name in ("partial", "version"))
    if whole.is_file():  # fetched before a kill
        return whole
    say(f"  fetch {url}")
    answer = ""
    for attempt in range(ATTEMPTS):
        time.sleep(attempt)
        try:
            _transfer(url, partial, version)
            os.replace(partial, whole)
            return whole
        except requests.HTTPError as error:
            status = error.response.status_code
            answer = f"HTTP status {status}"
            if status == requests.codes.requested_range_not_satisfiable:
                partial.unlink()  # nothing is left to ask for: start again
            elif status < requests.codes.server_error:
                break
        except (requests.RequestException, ValueError) as error:  # of a host's name: urllib3's
            answer = type(error).__name__
    if not version.is_file():  # it cannot be resumed
        partial.unlink(missing_ok=True)
    raise ExecutionError(f"{url} ({answer})")


def _transfer(url: str, partial: Path, version: Path) -> None:
    """Request what is missing, with ``Range`` and ``If-Range`` (RFC 9110, 13.1.5 and 14.2).

    ``version`` is the file with the server's identifier of what has arrived in part. A server that
    cannot continue that sends the complete file.
    """
    headers, start = {"Accept-Encoding": "identity"}, 0
    if version.is_file() and partial.is_file() and partial.stat().st_size:
        start = partial.stat().st_size
        headers.update({"Range": f"bytes={start}-", "If-Range": version.read_text("utf-8")})
    with requests.get(url, headers=headers, stream=True, timeout=SECONDS_WITHOUT_DATA) as response:
        response.raise_for_status()
        if response.status_code != requests.codes.partial_content:
            start = 0
            partial.unlink(missing_ok=True)  # before the identifier of the new version is written
        if re.search(r"\.t?gz$", url):  # as of AddEncoding: the file as it is, as wget keeps it
            response.raw.headers.pop("Content-Encoding", None)
        # A weak ETag may stay the same when the bytes change.
        etag = response.headers.get("ETag", "")
        known = response.headers.get("Last-Modified", "") if etag[:2] in ("", "W/") else etag
        version.unlink(missing_ok=True)
        if known:
            version.write_text(known, "utf-8")
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        with (
            partial.open("ab") as file,
            tqdm.wrapattr(file, "write", total, initial=start, leave=False, disable=None) as stream,
        ):
            for piece in response.iter_content(PIECE):
                stream.write(piece)
        if total is not None and partial.stat().st_size < total:  # urllib3 1 does not say so
            raise requests.ConnectionError(f"{url} ended early")
    version.unlink(missing_ok=True)
