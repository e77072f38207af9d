"""Command lines that work, with their files: what the sweep spoils."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import torch
import yaml

from capsnmt.analysis.__main__ import main as analyse
from capsnmt.checkpoints.average import main as average
from capsnmt.checkpoints.storage import save_checkpoint
from capsnmt.corpora.__main__ import main as prepare
from capsnmt.evaluation.__main__ import main as evaluate
from capsnmt.experiment.cli import main as run
from capsnmt.report.__main__ import main as report
from tests.commands import train
from tests.corpora.miniatures import MINIATURES, recipe_for
from tests.evaluation.outputs import write_outputs
from tests.report.finished_runs import write_run
from tests.support import REPO
from tests.system.conftest import write_corpus

CORPUS = "iwslt14_es_en"


@dataclass(frozen=True)
class Command:
    """A command with its files.

    Attributes:
        main: the entry point.
        arguments: arguments that work in the folder of the files.
        output: what it writes, relative to that folder.
        spoilt: glob patterns of the files that are worth spoiling.
    """

    main: Callable[[List[str]], int]
    arguments: Tuple[str, ...]
    output: str
    spoilt: Tuple[str, ...]


COMMANDS: Dict[str, Command] = {
    "evaluate": Command(
        evaluate,
        (
            *("good=good", "half=half", "--baseline", "third=third", "--reference", "reference"),
            *("--remove-bpe", "subword_nmt", "--detokenize", "moses", "--target-lang", "en"),
            *("--resamples", "10", "--segment-scores", "comet", "good=s1", "half=s2", "third=s3"),
            *("--json", "scores.json"),
        ),
        "scores.json",
        ("good", "half", "third", "reference", "s1", "s2"),
    ),
    "report": Command(
        report,
        ("runs", "--output", "page", "--samples", "2", "--title", "A title"),
        "page",
        ("runs/*/seed-1/*.json", "runs/*/seed-1/*.log", "runs/*/seed-1/*.txt", "runs/data/**/*"),
    ),
    "average": Command(
        average,
        ("saved", "--last-updates", "2", "--upper-bound", "3", "--output", "average.pt"),
        "average.pt",
        ("saved/*.pt",),
    ),
    "run": Command(
        run,
        (
            *(
                "--config",
                "row.yaml",
                "--output",
                "out",
                "--cpu",
                "--threads",
                "1",
                "--seeds",
                "1,2",
            ),
            *("--set", "train.dropout=0.2", "--name", "mine", "--max-update", "20", "--dry-run"),
        ),
        "out",
        ("row.yaml",),
    ),
    "prepare": Command(
        prepare,
        (
            *(f"{CORPUS}.yaml", "--data", "archives", "--offline", "--output", "prepared"),
            *("--workers", "1"),
        ),
        "prepared",
        ("archives/*", f"{CORPUS}.yaml"),
    ),
    "analyse": Command(
        analyse,
        (
            *("it=model.pt", "--data", "bin", "--output", "page", "--sentences", "3"),
            *("--only", "attention,agreement", "--seed", "2", "--max-tokens", "100"),
            *("--device", "cpu", "--subset", "test"),
        ),
        "page",
        ("model.pt", "bin/*"),
    ),
}


def write_evaluate(folder: Path) -> None:
    write_outputs(folder)
    for number in (1, 2, 3):
        text = "".join(f"{0.1 * number + segment / 100}\n" for segment in range(12))
        (folder / f"s{number}").write_text(text, "utf-8")


def write_report(folder: Path) -> None:
    runs = folder / "runs"
    write_run(runs, "baseline")
    write_run(runs, "em_routing", baseline="baseline")
    # relative paths, so that the copies of the folder read their own files
    for path in runs.rglob("*.json"):
        path.write_text(path.read_text("utf-8").replace(f"{runs}", "runs"), "utf-8")


def write_average(folder: Path) -> None:
    (folder / "saved").mkdir()
    for update in (1, 2, 3):
        state = {"model": {"weight": torch.full((2, 3), float(update))}, "args": None}
        save_checkpoint(state, folder / "saved" / f"checkpoint_1_{update}.pt")


def write_row(folder: Path) -> None:
    row = yaml.safe_load((REPO / "configs/multi30k/base.yaml").read_text("utf-8"))
    row["arch"] = "transformer_em_routing_tiny"
    row["average"] = {"last-updates": 2}
    row["train"].update({"save-interval-updates": 5, "keep-interval-updates": 2})
    (folder / "row.yaml").write_text(yaml.safe_dump(row), "utf-8")


def write_archives(folder: Path) -> None:
    files = MINIATURES[CORPUS]()
    recipe_for(CORPUS, files, folder)
    (folder / "archives").mkdir()
    for name, content in files.items():
        (folder / "archives" / name).write_bytes(content)


def write_model(folder: Path) -> None:
    write_corpus(folder)
    train(folder / "bin", folder / "trained", "transformer_em_routing_tiny", 1)
    (folder / "trained" / "checkpoint_last.pt").rename(folder / "model.pt")
    for path in [*(folder / "trained").iterdir()]:
        path.unlink()


WRITERS: Dict[str, Callable[[Path], None]] = {
    "evaluate": write_evaluate,
    "report": write_report,
    "average": write_average,
    "run": write_row,
    "prepare": write_archives,
    "analyse": write_model,
}
