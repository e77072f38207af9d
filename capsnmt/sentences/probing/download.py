"""Download SentEval's files: ``python -m capsnmt.sentences.probing.download --output DIR``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Dict, Optional, Sequence

from capsnmt import records
from capsnmt.cli import (
    ConfigurationError,
    ExecutionError,
    OneLineParser,
    add_mirrors,
    comma_list,
    run_command,
)
from capsnmt.corpora.manifest import NAME as MANIFEST
from capsnmt.files import sha256, temporary_path
from capsnmt.sentences.examples import read_fields
from capsnmt.sentences.probing.senteval import FIELDS
from capsnmt.sentences.probing.tasks import TASKS, ProbingTask, require_task

DESCRIPTION = "SentEval's probing tasks (Conneau et al. 2018)"
ADDRESS = "https://raw.githubusercontent.com/facebookresearch/SentEval/main/data/probing/"
RETRIES = 2
SECONDS_WITHOUT_DATA = 30
# lines of each split, in every one of the ten files (Conneau et al. 2018, section 2)
SIZES = {"tr": 100_000, "va": 10_000, "te": 10_000}


def check_published(path: Path, task: ProbingTask) -> None:
    """Raise unless the file has the form of a published one.

    **D**: SentEval publishes no checksums, so lines, splits and classes are checked. The SHA-256 of
    a downloaded file is recorded, and checked from then on.

    Raises:
        ConfigurationError: it has another form.
    """
    rows = [(mark, label) for _, (mark, label, _) in read_fields(path, FIELDS)]
    sizes = Counter(mark for mark, _ in rows)
    classes = len({label for _, label in rows})
    if sizes != SIZES or classes != task.classes:
        raise ConfigurationError(
            f"{path}: {dict(sizes)} lines and {classes} classes, where SentEval's {task.file} has "
            f"{SIZES} and {task.classes}: fetch it again"
        )


def fetch(task: ProbingTask, folder: Path, addresses: Sequence[str]) -> None:
    """Download one file from the first address that has it; it gets its name when it is complete.

    Raises:
        ConfigurationError: it is not what SentEval publishes.
        ExecutionError: no address has it; the message lists them all.
    """
    import pooch
    import requests

    path = folder / task.file
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=SECONDS_WITHOUT_DATA)
    part = temporary_path(path)
    failures = []
    for address in addresses:
        part.unlink(missing_ok=True)
        print(f"fetch {address}{task.file}", flush=True)
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
            failures.append(f"{address}{task.file} ({type(error).__name__})")
            continue
        check_published(part, task)
        os.replace(part, path)
        return
    raise ExecutionError(
        f"{', '.join(failures)}: cannot be downloaded: try again, or put the file into {folder} "
        f"by other means"
    )


def download(
    names: Sequence[str],
    folder: Path,
    addresses: Sequence[str] = (ADDRESS,),
    offline: bool = False,
) -> None:
    """Download the files of some tasks; those that are in the folder are checked only.

    Args:
        names: the tasks.
        folder: the folder of the files.
        addresses: where to look for them, in this order.
        offline: whether the network must not be used.

    Raises:
        ConfigurationError: a file is missing, or has changed since it was downloaded.
        ExecutionError: a file cannot be downloaded.
    """
    tasks = [require_task(name) for name in names]
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / MANIFEST
    checksums: Dict[str, str] = (
        records.read(record, dict).get("sha256", {}) if record.exists() else {}
    )
    for task in tasks:
        path = folder / task.file
        if not path.exists():
            if offline:
                raise ConfigurationError(
                    f"--offline: {path} is missing: put it there by other means"
                )
            fetch(task, folder, addresses)
        elif task.file not in checksums:  # brought by other means
            check_published(path, task)
        found = sha256(path)
        if checksums.get(task.file, found) != found:
            raise ConfigurationError(
                f"{path} has changed since it was downloaded: delete it and download it again"
            )
        checksums[task.file] = found
        print(f"{path}: {', '.join(f'{mark} {n:,}' for mark, n in SIZES.items())}")
        records.write(record, {"description": DESCRIPTION, "sha256": checksums})


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line and return its exit status."""
    return run_command(lambda: _main(arguments))


def _main(arguments: Optional[Sequence[str]]) -> None:
    parser = OneLineParser(prog="python -m capsnmt.sentences.probing.download", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the files")
    parser.add_argument(
        "--tasks", type=comma_list(TASKS), default=list(TASKS), help="comma list (default: all ten)"
    )
    add_mirrors(parser)
    parser.add_argument("--offline", action="store_true", help="do not use the network")
    options = parser.parse_args(arguments)
    download(options.tasks, options.output, [*options.mirrors, ADDRESS], options.offline)


if __name__ == "__main__":
    sys.exit(main())
