"""The files that the commands of the sweep read."""

import shutil
from pathlib import Path

import torch
import yaml

from capsnmt.checkpoints.load import save_checkpoint
from tests.commands import TINY
from tests.corpora.miniatures import MINIATURES, recipe_for
from tests.evaluation.outputs import write_outputs
from tests.report.finished_runs import write_run
from tests.support import PLUGIN, REPO, SMALL, build, parse
from tests.translate.conftest import Row, finish_run

CORPUS = "iwslt14_es_en"
ROW = Row("transformer_em_routing_tiny", "en de", {"en": "moses", "de": "moses"}, {"size": 60})


def write_evaluate(folder: Path) -> None:
    """Write outputs of fairseq-generate, their reference, and scores from elsewhere."""
    write_outputs(folder)
    for number in (1, 2, 3):
        text = "".join(f"{0.1 * number + segment / 100}\n" for segment in range(12))
        (folder / f"s{number}").write_text(text, "utf-8")


def write_report(folder: Path) -> None:
    """Write the folders of two finished runs."""
    runs = folder / "runs"
    write_run(runs, "baseline")
    write_run(runs, "em_routing", baseline="baseline")
    _make_relative(runs, f"{runs}", "runs")


def write_average(folder: Path) -> None:
    """Write three checkpoints."""
    (folder / "saved").mkdir()
    for update in (1, 2, 3):
        state = {"model": {"weight": torch.full((2, 3), float(update))}, "args": None}
        save_checkpoint(state, folder / "saved" / f"checkpoint_1_{update}.pt")


def write_plain(folder: Path) -> None:
    """Write a checkpoint of a model without mechanisms."""
    arguments = ("capsnmt_transformer", *SMALL)
    configuration = {"model": parse(*arguments), "common": {"user_dir": PLUGIN}}
    weights = build(*arguments).state_dict()
    save_checkpoint({"model": weights, "args": None, "cfg": configuration}, folder / "model.pt")


def write_row(folder: Path) -> None:
    """Write the configuration of a row."""
    row = yaml.safe_load((REPO / "configs/multi30k/base.yaml").read_text("utf-8"))
    row["arch"] = "transformer_em_routing_tiny"
    row["average"] = {"last-updates": 2}
    row["train"].update({"save-interval-updates": 5, "keep-interval-updates": 2})
    (folder / "row.yaml").write_text(yaml.safe_dump(row), "utf-8")


def write_archives(folder: Path) -> None:
    """Write a recipe and the archives that it names."""
    files = MINIATURES[CORPUS]()
    recipe_for(CORPUS, files, folder)
    (folder / "archives").mkdir()
    for name, content in files.items():
        (folder / "archives" / name).write_bytes(content)


def write_trained(folder: Path) -> None:
    """Write prepared data, a finished run, its checkpoint as ``model.pt``, and ``source`` text."""
    sizes = {flag.lstrip("-"): int(size) for flag, size in zip(TINY[::2], TINY[1::2])}
    train = {"max-update": 1, **sizes, "share-all-embeddings": True}
    run = finish_run(folder, "routed", ROW, train)
    kept = ("config.json", "training.json", "scores.json", "checkpoint_last.pt", "checkpoints")
    for path in run.path.parent.rglob("*"):
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() and path != run.path else None
            path.unlink() if path.is_file() else None
    shutil.rmtree(folder / "routed-data.corpus")
    data = (folder / "routed-data").rename(folder / "data")
    shutil.rmtree(data / "sources", ignore_errors=True)
    _make_relative(folder, f"{folder}/routed-data", "data")
    shutil.copy(run.last_checkpoint, folder / "model.pt")
    shutil.copy(data / "raw" / "test.en", folder / "source")


def _make_relative(folder: Path, absolute: str, relative: str) -> None:
    """Edit the records of a folder, so that its copies read their own files."""
    for path in folder.rglob("*.json"):
        path.write_text(path.read_text("utf-8").replace(absolute, relative), "utf-8")
