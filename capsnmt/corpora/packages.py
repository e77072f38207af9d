"""Distributions fetched by pip from whatever index the user has set up; nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from capsnmt.corpora.errors import PreparationError
from capsnmt.corpora.progress import say
from capsnmt.corpora.sources import cached

# The wheels are data: which Python could import them is no matter, but pip asks.
WHEEL_PYTHON = "3.12"


def requirement(name: str) -> str:
    """Return ``PROJECT==VERSION`` of the wheel file `name`."""
    project, version = name.split("-")[:2]
    return f"{project}=={version}"


def fetch_package(name: str, checksum: str, folder: Path, offline: bool) -> Path:
    """Return ``folder/name``, a wheel fetched with ``pip download`` and checked by pip.

    Args:
        name: the wheel's file name.
        checksum: its SHA-256.
        folder: the cache.
        offline: use the cache only.

    Raises:
        PreparationError: pip has no such file, or it is not in the cache and `offline` is set.
    """
    path = folder / name
    if cached(path, checksum, offline):
        return path
    if path.suffix != ".whl":
        # D: pip runs a source distribution's build script to learn its name.
        raise PreparationError(
            f"{name}: source distributions are not fetched, because pip would run code of theirs: "
            f"give the folder that has it with --local"
        )
    incoming = folder / "incoming.part"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    say(f"  pip download {requirement(name)}")
    try:
        _pip_download(name, checksum, incoming)
        os.replace(incoming / name, path)
    finally:
        shutil.rmtree(incoming)
    return path


def _pip_download(name: str, checksum: str, folder: Path) -> None:
    listed = folder / "requirements.txt"
    listed.write_text(f"{requirement(name)} --hash=sha256:{checksum}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--python-version", WHEEL_PYTHON]
    command += ["--dest", str(folder), "--requirement", str(listed)]
    finished = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if finished.returncode != 0 or not (folder / name).is_file():
        errors = [line for line in finished.stderr.splitlines() if "ERROR" in line]
        said = (errors or finished.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise PreparationError(
            f"{requirement(name)} could not be fetched with pip from your package index: "
            f"{said.strip()}. Fetch {name} by other means and give its folder with --local"
        )
