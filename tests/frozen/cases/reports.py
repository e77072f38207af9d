"""Reports of several seeds, of a sweep, and of classifiers."""

from __future__ import annotations

import re

from tests.frozen.kit import World, frozen, tree
from tests.report.finished_runs import add_seeds, write_classifiers, write_run, write_swept


@frozen("reports of seeds, a sweep and classifiers say this, and scores.csv has it", floats=True)
def reports(world: World) -> str:
    output = world.folder / "seeds"
    write_run(output, "baseline")
    write_run(output, "em_routing", "baseline")
    add_seeds(output, "baseline", [20.0, 22.0, 24.0], [1, 1, 1])
    add_seeds(output, "em_routing", [23.0, 24.0, 25.5], [0.02, 0.001, 0.001])
    write_swept(world.folder / "sweep")
    write_classifiers(world.folder / "classifiers")
    lines = []
    for name in ("seeds", "sweep", "classifiers"):
        page = world.folder / f"report of {name}"
        lines += [
            f"== {name}",
            world.run("capsnmt-report", world.folder / name, "--output", page, "--samples", "2"),
        ]
        lines += [*tree(page), (page / "report.md").read_text("utf-8")]
        lines.append((page / "scores.csv").read_text("utf-8"))
    text = re.sub(r"(?m)^(\| (?:capsnmt|sacre\w+) \|) .*", r"\1 V |", "\n".join(lines))
    return world.normalise(text)
