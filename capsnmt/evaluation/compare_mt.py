"""compare-mt's report (Neubig et al. 2019), in a folder of its own.

**D**: its numbers are never mixed with ours. Its bootstrap resamples half of the sentences, which
no flag changes and which is what Ampomah et al. 2020 report. compare-mt does not seed itself: here
its seed is fixed, and the command is written into the folder.
"""

import html
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Mapping, Optional, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.scores import Test

OUTPUT = "report"  # its folder, where it runs
PAGE = "index.html"
MOST = 1000  # samples: it scores them one by one
# the order of its tables is the order of Python sets
FIXED = {"PYTHONUTF8": "1", "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}


def check_folder(folder: Path) -> None:
    """Raise unless compare-mt is installed and the folder is new or empty."""
    # it imports six without declaring it
    if not all(importlib.util.find_spec(package) for package in ("compare_mt", "six")):
        raise ConfigurationError(
            "--compare-mt needs compare-mt and six; pip install 'capsnmt[evaluation]'"
        )
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigurationError(f"--compare-mt {folder} is not an empty folder; name another")


def write_report(
    folder: Path,
    test: Test,
    reference: Sequence[str],
    systems: Mapping[str, Sequence[str]],
    source: Optional[Sequence[str]],
) -> None:
    """Write compare-mt's report into a folder that passes `check_folder`.

    Texts are tokens of each segment, separated by spaces. The other systems are compared with the
    first; the bootstrap takes the seed of the test, and its samples up to 1,000.
    """
    against = ";".join(f"0-{number}" for number in range(1, len(systems)))
    directions = f",compare_directions={against}" if against else ""
    with tempfile.TemporaryDirectory() as scratch:

        def write(name: str, lines: Sequence[str]) -> str:
            """Write a text, escaped: compare-mt puts it into its page as it is."""
            text = "".join(f"{html.escape(line, quote=False)}\n" for line in lines)
            Path(scratch, name).write_text(text, "utf-8")
            return name

        arguments = [
            write("reference", reference),
            *(write(f"system-{number}", lines) for number, lines in enumerate(systems.values())),
            *("--sys_names", *map(html.escape, systems)),
            *("--compare_scores", f"score_type=bleu,bootstrap={min(test.samples, MOST)}"),
            "score_type=length",
            *("--compare_ngrams", f"compare_type=match{directions}"),
            *("--compare_sentence_examples", f"score_type=sentbleu{directions}"),
            *("--seed", str(test.seed), "--output_directory", OUTPUT),
            *(() if source is None else ("--src_file", write("source", source))),
        ]
        # in the scratch folder, because it may write to the folder it runs in
        done = subprocess.run(
            [sys.executable, "-m", "compare_mt.compare_mt_main", *arguments],
            cwd=scratch,
            env={**os.environ, **FIXED},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        report = Path(scratch, OUTPUT)
        if done.returncode or not (report / PAGE).is_file():
            last = (done.stderr.strip() or "it wrote no page").splitlines()[-1]
            raise ConfigurationError(f"--compare-mt {folder}: compare-mt failed: {last}")
        text = f"compare-mt {shlex.join(arguments)}\n\n{done.stdout}"
        (report / "report.txt").write_text(text, "utf-8")
        shutil.copytree(report, folder, dirs_exist_ok=True)
