"""Mean and standard deviation of a row's scores over its seeds."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from capsnmt.experiment.files import read_json, write_json
from capsnmt.experiment.settings import differences


def summarise(folder: Path, reference: Path) -> Dict[str, Any]:
    """Write ``summary.json`` over all finished seeds of a row, and return it.

    **D**: the standard deviation is that of a sample (n - 1), ``None`` for one seed.

    Args:
        folder: the row's folder, with a folder ``seed-S`` for each seed.
        reference: ``config.json`` of one seed; seeds trained with other settings are left out.
    """
    ours = read_json(reference)
    seeds: Dict[int, Dict[str, float]] = {}
    left_out: List[int] = []
    for path in sorted(folder.glob("seed-*/scores.json")):
        description = read_json(path.with_name("config.json"))
        changed = [key for key, _, _ in differences(ours, description) if key != "seed"]
        updates = [each["settings"]["train"].get("max-update") for each in (ours, description)]
        if changed or updates[0] != updates[1]:
            left_out.append(description["seed"])
        else:
            seeds[description["seed"]] = dict(numbers(read_json(path)))
    common = set.intersection(*(set(scores) for scores in seeds.values())) if seeds else set()
    summary = {
        "row": ours["row"],
        "seeds": sorted(seeds),
        "left-out-seeds": sorted(left_out),
        "scores": {
            name: spread([scores[name] for _, scores in sorted(seeds.items())])
            for name in sorted(common)
        },
    }
    write_json(folder / "summary.json", summary)
    return summary


def spread(values: List[float]) -> Dict[str, Any]:
    """Mean and standard deviation of a sample.

    >>> spread([40.0, 42.0])["mean"], round(spread([40.0, 42.0])["std"], 3)
    (41.0, 1.414)
    """
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": deviation, "values": values}


def numbers(value: Any, name: str = "") -> Iterator[Tuple[str, float]]:
    """Every number of nested JSON with its dotted name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, float(value)
