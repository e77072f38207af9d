"""compare-mt's report (Neubig et al. 2019), in a folder of its own.

**D**: its numbers are never mixed with ours. Its bootstrap resamples half of the sentences, which
no flag changes and which is what Ampomah et al. 2020 report. sacreBLEU's resamples all of them and
is the primary test. compare-mt does not seed itself: here its seed is fixed, and all settings are
written into the folder.
"""

from __future__ import annotations

import html
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.settings import CompareMT

NEEDED = ("compare_mt", "six")  # it imports six without declaring it
OUTPUT = "report"  # its folder, where it runs
PAGE, TEXT, SETTINGS = "index.html", "report.txt", "settings.json"
SAMPLE_RATIO = 0.5
# the order of its tables is the order of Python sets
FIXED = {"PYTHONUTF8": "1", "PYTHONHASHSEED": "0"}


def check_folder(folder: Path) -> None:
    """Raise unless compare-mt is installed and the folder is new or empty.

    Raises:
        ConfigurationError: compare-mt is missing, or the folder holds something.
    """
    if not all(importlib.util.find_spec(package) for package in NEEDED):
        raise ConfigurationError(
            "--compare-mt needs compare-mt and six: pip install 'capsnmt[evaluation]'"
        )
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigurationError(f"--compare-mt {folder}: is not an empty folder: name another")


def write_report(
    settings: CompareMT,
    reference: Sequence[str],
    systems: Sequence[Tuple[str, Sequence[str]]],
    source: Optional[Sequence[str]],
) -> None:
    """Write compare-mt's report into a folder, which passes :func:`check_folder`.

    Args:
        settings: settings of the report.
        reference: tokens of each segment, separated by spaces.
        systems: (name, tokens of each segment); the others are compared with the first.
        source: tokens of each segment, or ``None``.

    Raises:
        ConfigurationError: compare-mt failed; the message ends with its last line.
    """
    folder = settings.folder
    with tempfile.TemporaryDirectory() as scratch:
        arguments = _arguments(Path(scratch), reference, systems, source, settings)
        # in the scratch folder, because it may write to the folder it runs in
        done = subprocess.run(
            [sys.executable, "-m", "compare_mt.compare_mt_main", *arguments],
            cwd=scratch,
            env={**os.environ, **FIXED, "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        report = Path(scratch, OUTPUT)
        if done.returncode or not (report / PAGE).is_file():
            last = (done.stderr.strip() or "it wrote no page").splitlines()[-1]
            raise ConfigurationError(f"--compare-mt {folder}: compare-mt failed: {last}")
        (report / TEXT).write_text(done.stdout, "utf-8")
        record = {
            "compare-mt": metadata.version("compare-mt"),
            "systems": [name for name, _ in systems],
            "bootstrap": settings.samples,
            "sample ratio": SAMPLE_RATIO,
            "seed": settings.seed,
            "arguments": arguments,
        }
        records.write(report / SETTINGS, record)
        shutil.copytree(report, folder, dirs_exist_ok=True)


def _arguments(
    scratch: Path,
    reference: Sequence[str],
    systems: Sequence[Tuple[str, Sequence[str]]],
    source: Optional[Sequence[str]],
    settings: CompareMT,
) -> List[str]:
    """Write the texts into ``scratch`` and return compare-mt's arguments.

    compare-mt does not escape sentences in its HTML page. They are escaped here, token by token,
    which changes no score.
    """

    def write(name: str, lines: Sequence[str]) -> str:
        path = scratch / name
        path.write_text("".join(f"{html.escape(line, quote=False)}\n" for line in lines), "utf-8")
        return name

    directions = ";".join(f"0-{number}" for number in range(1, len(systems)))
    against = [f",compare_directions={directions}"] if directions else [""]
    arguments = [
        write("reference", reference),
        *(write(f"system-{number}", lines) for number, (_, lines) in enumerate(systems)),
        *("--sys_names", *(html.escape(name) for name, _ in systems)),
        *(
            "--compare_scores",
            f"score_type=bleu,bootstrap={settings.samples}",
            "score_type=length",
        ),
        *("--compare_ngrams", f"compare_type=match{against[0]}"),
        *("--compare_sentence_examples", f"score_type=sentbleu{against[0]}"),
        *("--seed", str(settings.seed), "--output_directory", OUTPUT),
    ]
    if source is not None:
        arguments += ["--src_file", write("source", source)]
    return arguments
