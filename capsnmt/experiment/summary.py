"""Mean and standard deviation of a row's scores over its seeds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from capsnmt.evaluation.document import METRICS
from capsnmt.evaluation.seeds import spread
from capsnmt.experiment.settings import differences
from capsnmt.files import read_json, write_json


def summarise(folder: Path, reference: Path) -> Dict[str, Any]:
    """Write ``summary.json`` over all finished seeds of a row, and return it.

    Args:
        folder: the row's folder, with a folder ``seed-S`` for each seed.
        reference: ``config.json`` of one seed; seeds trained with other settings are left out.
    """
    ours = read_json(reference)
    finished = {
        path.parent: read_json(path.with_name("config.json"))
        for path in folder.glob("seed-*/scores.json")
    }
    seeds = {
        description["seed"]: read_json(path / "scores.json")
        for path, description in finished.items()
        if _same_training(ours, description)
    }
    documents = [seeds[seed] for seed in sorted(seeds)]
    summary = {
        "row": ours["row"],
        "seeds": sorted(seeds),
        "left-out-seeds": sorted({each["seed"] for each in finished.values()} - set(seeds)),
        "scores": {
            test_set: _scores(ours["row"], [document[test_set] for document in documents])
            for test_set in ours["settings"]["data"]["test-sets"]
        },
    }
    write_json(folder / "summary.json", summary)
    return summary


def lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """The summary for readers: a line for each test set."""
    for test_set, metrics in summary["scores"].items():
        told = []
        for metric, scores in metrics.items():
            deviation = "" if scores["std"] is None else f" +- {scores['std']:.2f}"
            told.append(f"{metric} {scores['mean']:.2f}{deviation}")
        yield f"{test_set}: {', '.join(told)} ({len(summary['seeds'])} seed(s))"


def _same_training(ours: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    changed = {key for key, _, _ in differences(ours, other)} - {"seed"}
    updates = {each["settings"]["train"]["max-update"] for each in (ours, other)}
    test_sets = {str(each["settings"]["data"]["test-sets"]) for each in (ours, other)}
    return not changed and len(updates) == len(test_sets) == 1


def _scores(row: str, documents: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Each metric of one test set over the seeds; the documents are ``capsnmt-evaluate --json``."""
    systems: List[Mapping[str, Any]] = [
        system for document in documents for system in document["systems"] if system["name"] == row
    ]
    return {
        metric: {
            **asdict(spread([system[metric]["score"] for system in systems])),
            "signature": systems[0][metric]["signature"],
        }
        for metric in METRICS
    }
