"""Fetch SentEval's probing files: ``python -m capsnmt.sentences.probing.download --output DIR``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Dict, Optional, Sequence

from capsnmt.arguments import OneLineParser
from capsnmt.errors import ConfigurationError, not_installed
from capsnmt.files import read_json, sha256, temporary_path, write_json
from capsnmt.sentences.examples import read_fields
from capsnmt.sentences.probing.senteval import FIELDS
from capsnmt.sentences.probing.tasks import TASKS, ProbingTask, require_task

ADDRESS = "https://raw.githubusercontent.com/facebookresearch/SentEval/main/data/probing/"
RETRIES = 2
SECONDS_WITHOUT_DATA = 30
# lines of each split, in every one of the ten files (Conneau et al. 2018, section 2)
SIZES = {"tr": 100_000, "va": 10_000, "te": 10_000}


def check_published(path: Path, task: ProbingTask) -> None:
    """Raise unless the file has the form of a published one.

    **D**: SentEval publishes no checksums. What is known of its files is checked instead: lines,
    splits and classes. The SHA-256 of what was fetched is kept, and checked ever after.

    Raises:
        ConfigurationError: it does not.
    """
    rows = [(mark, label) for _, (mark, label, _) in read_fields(path, FIELDS)]
    sizes = Counter(mark for mark, _ in rows)
    classes = len({label for _, label in rows})
    if sizes != SIZES or classes != task.classes:
        raise ConfigurationError(
            f"{path}: {dict(sizes)} lines and {classes} classes, where SentEval's {task.file} has "
            f"{SIZES} and {task.classes}: fetch it again"
        )


def fetch(task: ProbingTask, folder: Path, address: str) -> None:
    """Fetch one file; it gets its name when it is whole.

    Raises:
        ConfigurationError: it cannot be fetched, or is not what SentEval publishes.
    """
    try:
        import pooch
        import requests
    except ImportError as error:
        raise not_installed(error, "data") from None
    path = folder / task.file
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=SECONDS_WITHOUT_DATA)
    part = temporary_path(path)
    part.unlink(missing_ok=True)
    try:
        pooch.create(
            path=folder,
            base_url=address,
            registry={part.name: None},
            urls={part.name: address + task.file},
            retry_if_failed=RETRIES,
        ).fetch(part.name, downloader=downloader)
    except (requests.RequestException, ValueError) as error:
        part.unlink(missing_ok=True)
        raise ConfigurationError(
            f"{address}{task.file} could not be fetched ({type(error).__name__}): try again, or "
            f"put the file into {folder} by other means"
        ) from None
    check_published(part, task)
    os.replace(part, path)


def download(names: Sequence[str], folder: Path, address: str = ADDRESS) -> None:
    """Bring the files of the tasks into a folder; those that are there are not fetched again.

    Raises:
        ConfigurationError: a file cannot be fetched, or one that was fetched has changed since.
    """
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "downloaded.json"
    checksums: Dict[str, str] = read_json(record) if record.exists() else {}
    for name in names:
        task = require_task(name)
        path = folder / task.file
        if not path.exists():
            print(f"fetch {address}{task.file}", flush=True)
            fetch(task, folder, address)
            checksums[task.file] = sha256(path)
            write_json(record, checksums)
        elif checksums.get(task.file, sha256(path)) != sha256(path):
            raise ConfigurationError(
                f"{path} has changed since it was fetched: remove it and fetch it again"
            )
        elif task.file not in checksums:  # brought by other means
            check_published(path, task)
        print(f"{path}: {', '.join(f'{mark} {n:,}' for mark, n in SIZES.items())}")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line and return its exit status."""
    parser = OneLineParser(prog="python -m capsnmt.sentences.probing.download", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the files")
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma list (default: all ten)")
    parser.add_argument("--address", default=ADDRESS, help="where the files are")
    options = parser.parse_args(arguments)
    download([name.strip() for name in options.tasks.split(",")], options.output, options.address)
    return 0


if __name__ == "__main__":
    sys.exit(main())
