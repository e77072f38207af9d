"""compare-mt's report (Neubig et al. 2019) beside our scores, and the n-grams it finds salient.

**D**: its numbers never stand among ours. Its bootstrap draws half of the sentences, which no flag
changes and which is what Ampomah et al. 2020 report; sacreBLEU's draws all of them, and stays the
primary test. Left alone, it is seeded differently at every run: here its seed is fixed, and all
settings are written beside the report.
"""

from __future__ import annotations

import html
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from capsnmt.errors import ConfigurationError
from capsnmt.files import read_json, temporary_path, write_json

NEEDED = ("compare_mt", "six")  # it imports six without declaring it
PAGE, TEXT, SETTINGS = "index.html", "report.txt", "settings.json"
SAMPLE_RATIO = 0.5
# its tables follow the order of sets
FIXED = {"PYTHONUTF8": "1", "PYTHONHASHSEED": "0"}


@dataclass(frozen=True)
class SalientNgrams:
    """The n-grams (n = 1..4) that tell two systems apart most by their matches with the reference.

    Attributes:
        left, right: (n-gram, matches of the left system, matches of the right one), most telling
            first: those that the left system matches more often, and those that the right does.
    """

    left: List[Tuple[str, int, int]]
    right: List[Tuple[str, int, int]]


def is_installed() -> bool:
    """Whether compare-mt and what it needs can be imported."""
    return all(importlib.util.find_spec(package) for package in NEEDED)


def check_folder(folder: Path) -> None:
    """Raise unless compare-mt is installed and the folder is free, or holds an earlier report.

    Raises:
        ConfigurationError: one line.
    """
    if not is_installed():
        raise ConfigurationError(
            "--compare-mt needs compare-mt and six: pip install 'capsnmt[evaluation]'"
        )
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir() or not _is_ours(folder):
        raise ConfigurationError(
            f"--compare-mt {folder} exists and is no report of compare-mt made here: name another "
            "folder"
        )


def _is_ours(folder: Path) -> bool:
    try:
        return "compare-mt" in read_json(folder / SETTINGS)
    except (ConfigurationError, OSError, TypeError):
        return False


def write_report(
    folder: Path,
    reference: Sequence[str],
    systems: Sequence[Tuple[str, Sequence[str]]],
    source: Optional[Sequence[str]],
    resamples: int,
    seed: int,
) -> Dict[str, Any]:
    """Write compare-mt's report into a folder, whole or not at all; its settings.

    Args:
        folder: what :func:`check_folder` lets pass; an earlier report is replaced.
        reference: tokens, separated by spaces.
        systems: (name, tokens of each segment), the baseline first: each other one is compared
            with it.
        source: tokens, or ``None``.
        resamples, seed: of its bootstrap.

    Raises:
        ConfigurationError: compare-mt failed; its last line is told.
    """
    part = temporary_path(folder)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            arguments = _arguments(
                Path(scratch), part.resolve(), reference, systems, source, resamples, seed
            )
            # it may write to the folder it runs in
            done = subprocess.run(
                [sys.executable, "-m", "compare_mt.compare_mt_main", *arguments],
                cwd=scratch,
                env={**os.environ, **FIXED, "PYTHONWARNINGS": "ignore"},
                capture_output=True,
                text=True,
                encoding="utf-8",
                check=False,
            )
        if done.returncode or not (part / PAGE).is_file():
            last = (done.stderr.strip() or "it wrote no page").splitlines()[-1]
            raise ConfigurationError(f"--compare-mt {folder}: compare-mt failed: {last}")
        (part / TEXT).write_text(done.stdout, "utf-8")
        settings = {
            "compare-mt": metadata.version("compare-mt"),
            "systems": [name for name, _ in systems],
            "bootstrap": resamples,
            "sample ratio": SAMPLE_RATIO,
            "seed": seed,
            "arguments": arguments,
        }
        write_json(part / SETTINGS, settings)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return settings


def _arguments(
    scratch: Path,
    output: Path,
    reference: Sequence[str],
    systems: Sequence[Tuple[str, Sequence[str]]],
    source: Optional[Sequence[str]],
    resamples: int,
    seed: int,
) -> List[str]:
    """compare-mt's command line; the texts are written for it.

    It puts sentences into its page unescaped: they are escaped here, one token to one token, which
    changes no score.
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
        *("--compare_scores", f"score_type=bleu,bootstrap={resamples}", "score_type=length"),
        *("--compare_ngrams", f"compare_type=match{against[0]}"),
        *("--compare_sentence_examples", f"score_type=sentbleu{against[0]}"),
        *("--seed", str(seed), "--output_directory", str(output)),
    ]
    if source is not None:
        arguments += ["--src_file", write("source", source)]
    return arguments


def salient_ngrams(
    reference: Sequence[str], left: Sequence[str], right: Sequence[str], count: int
) -> SalientNgrams:
    """compare-mt's characteristic n-grams of two systems, ``compare_type=match``, alpha 1.

    With m the matches of an n-gram, it is ranked by (m_left + 1) / (m_left + m_right + 2). Nothing
    is drawn at random. **D**: at an equal rank the longer and then the alphabetically first is
    shown, so that the same texts give the same table.

    Args:
        reference, left, right: tokens, separated by spaces.
        count: n-grams a side; one that both match alike is never shown.

    Raises:
        ImportError: compare-mt is not installed; :func:`is_installed` tells.
    """
    from compare_mt.ngram_utils import compare_ngrams
    from compare_mt.stat_utils import extract_salient_features

    tokens = [line.split() for line in reference]
    _, one, _, _ = compare_ngrams(tokens, [line.split() for line in left])
    _, other, _, _ = compare_ngrams(tokens, [line.split() for line in right])
    ranks = extract_salient_features(one, other, alpha=1.0)

    def shown(sign: int) -> List[Tuple[str, int, int]]:
        best = sorted(ranks, key=lambda ngram: (-sign * ranks[ngram], -len(ngram), ngram))[:count]
        return [
            (" ".join(ngram), one[ngram], other[ngram])
            for ngram in best
            if sign * (one[ngram] - other[ngram]) > 0
        ]

    return SalientNgrams(shown(1), shown(-1))


def salient_sentences(
    reference: Sequence[str], left: Sequence[str], right: Sequence[str], count: int
) -> Tuple[List[int], List[int]]:
    """compare-mt's sentence examples: where two systems differ most in sentence BLEU.

    **D**: of sentences with an equal difference the first in the test set is shown.

    Args:
        reference, left, right: tokens, separated by spaces.
        count: sentences a side; one that both translate equally well is never shown.

    Returns:
        The numbers of the sentences, from 0, that the left system translates better, then of those
        that the right one does; the greatest difference first.

    Raises:
        ImportError: compare-mt is not installed; :func:`is_installed` tells.
    """
    from compare_mt.scorers import SentBleuScorer

    scorer = SentBleuScorer()

    def bleu(target: str, line: str) -> float:
        return float(scorer.score_sentence(target.split(), line.split())[0])

    gains = [
        bleu(target, other) - bleu(target, one) if one != other else 0.0
        for target, one, other in zip(reference, left, right)
    ]

    def shown(sign: int) -> List[int]:
        best = sorted(range(len(gains)), key=lambda number: -sign * gains[number])[:count]
        return [number for number in best if sign * gains[number] > 0]

    return shown(-1), shown(1)
