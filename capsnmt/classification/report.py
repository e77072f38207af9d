"""The papers' table and figure of a set of runs: ``python -m capsnmt.classification.report``.

Probing as Li et al. 2021, Table 7 (and Li et al. 2019, Table 1), logical inference as its Figure 4.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from capsnmt.arguments import OneLineParser
from capsnmt.classification.results import Result, in_order, over_seeds, read_results
from capsnmt.errors import ConfigurationError
from capsnmt.files import beside, written_beside
from capsnmt.probing.senteval import TASKS

# the systems of Li et al. 2021, then those of Li et al. 2019
ROWS = ("baseline", "disagreement", "aggregation", "both", "simple", "em")


def number(value: Optional[Dict[str, Any]]) -> str:
    """Mean and deviation as a cell of a table."""
    if value is None:
        return ""
    return f"{value['mean']:.2f}" + (f" ± {value['std']:.2f}" if value["std"] is not None else "")


def table_row(cells: Sequence[str]) -> str:
    """One line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(map(table_row, lines)) + "\n"


def _row_names(results: Sequence[Result]) -> List[str]:
    return in_order((result.row for result in results), ROWS)


def _seeds(results: Sequence[Result]) -> str:
    seeds = sorted({result.seed for result in results})
    deviation = "; mean ± standard deviation" if len(seeds) > 1 else ""
    return (
        f"Accuracy in percent, of seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
        f"{deviation}."
    )


def probing_table(results: Sequence[Result]) -> str:
    """Accuracy of each system on each probing task, and by kind of task on the average.

    An average is over the tasks that are there, of their means over seeds.
    """
    rows = _row_names(results)
    lines: List[List[str]] = []
    kinds = in_order(task.kind for task in TASKS.values())
    for kind in kinds:
        tasks = [name for name, task in TASKS.items() if task.kind == kind]
        present = [name for name in tasks if any(r.probing_task == name for r in results)]
        means: Dict[str, List[float]] = {row: [] for row in rows}
        for name in present:
            of_task = [result for result in results if result.probing_task == name]
            cells = [over_seeds(of_task, row, measure("accuracy")) for row in rows]
            majority = f"{of_task[0].measures['majority']:.2f}"
            lines.append([kind, TASKS[name].paper, majority, *map(number, cells)])
            for row, cell in zip(rows, cells):
                means[row] += [cell["mean"]] if cell else []
        if len(present) > 1:
            averages = [
                f"{sum(of_row) / len(present):.2f}" if len(of_row) == len(present) else ""
                for of_row in means.values()
            ]
            lines.append([kind, "Ave.", "", *averages])
    return f"{table(['', 'task', 'majority', *rows], lines)}\n{_seeds(results)}\n"


def measure(name: str) -> Callable[[Result], Optional[float]]:
    """What reads a measure off a result."""
    return lambda result: result.measures[name]


def bucket_accuracy(bucket: str) -> Callable[[Result], Optional[float]]:
    """What reads the accuracy in a bucket off a result; ``None`` where it has no examples."""
    return lambda result: result.measures["by_bucket"].get(bucket, {}).get("accuracy")


def buckets_of(results: Sequence[Result], least: int = 1) -> List[str]:
    """The numbers of operators that any result has, in rising order.

    **D**: as in the paper, from 1: words alone (0 operators) are six examples.
    """
    names = {int(b) for result in results for b in result.measures["by_bucket"]}
    return [str(bucket) for bucket in sorted(names) if bucket >= least]


def logical_inference_table(results: Sequence[Result]) -> str:
    """Accuracy of each system by the number of operators, then on all test pairs."""
    rows = _row_names(results)
    lines: List[List[str]] = []
    for bucket in buckets_of(results):
        examples = results[0].measures["by_bucket"].get(bucket, {}).get("examples", 0)
        cells = [over_seeds(results, row, bucket_accuracy(bucket)) for row in rows]
        lines.append([bucket, f"{examples:,}", *map(number, cells)])
    for name in ("accuracy", "macro_f1"):
        cells = [over_seeds(results, row, measure(name)) for row in rows]
        lines.append(
            [name.replace("_", "-"), f"{results[0].measures['examples']:,}", *map(number, cells)]
        )
    majority = results[0].measures["majority"]
    header = ["operators", "examples", *rows]
    return f"{table(header, lines)}\n{_seeds(results)} Majority class: {majority:.2f}.\n"


def draw_logical_inference(results: Sequence[Result], path: Path) -> None:
    """Draw accuracy over operators, a line a system with its deviation over seeds, as a PNG.

    Raises:
        ConfigurationError: matplotlib is not installed.
    """
    try:
        from matplotlib import style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigurationError(
            "the figure needs matplotlib: pip install 'capsnmt[demo]'"
        ) from None
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    # legible for readers with a colour vision deficiency
    axes.set_prop_cycle(style.library["tableau-colorblind10"]["axes.prop_cycle"])
    for row in _row_names(results):
        points = [
            (int(bucket), found)
            for bucket in buckets_of(results)
            if (found := over_seeds(results, row, bucket_accuracy(bucket)))
        ]
        axes.errorbar(
            [bucket for bucket, _ in points],
            [found["mean"] for _, found in points],
            yerr=[found["std"] or 0 for _, found in points],
            marker="o",
            markersize=4,
            capsize=3,
            label=row,
        )
    axes.axhline(
        results[0].measures["majority"], color="grey", linestyle=":", label="majority class"
    )
    axes.set_xticks([int(bucket) for bucket in buckets_of(results)])
    axes.set_xlabel("operators in the longer sentence")
    axes.set_ylabel("test accuracy, percent")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(beside(path), format="png", metadata={"Software": None})
    os.replace(beside(path), path)


def write_report(folders: Sequence[Path], output: Path) -> Iterator[Path]:
    """Write what the results below the folders allow; yield each file when it is there.

    Raises:
        ConfigurationError: there are no results, or matplotlib is missing.
    """
    results = read_results(folders)
    probing = [result for result in results if result.task == "probing"]
    logic = [result for result in results if result.task == "logical_inference"]
    if probing:
        yield from _write(output / "probing.md", probing_table(probing))
    if logic:
        yield from _write(output / "logical_inference.md", logical_inference_table(logic))
        figure = output / "logical_inference.png"
        draw_logical_inference(logic, figure)
        yield figure


def _write(path: Path, text: str) -> Iterator[Path]:
    with written_beside(path) as file:
        file.write(text)
    yield path


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line and return its exit status."""
    parser = OneLineParser(prog="python -m capsnmt.classification.report", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--output", type=Path, required=True, help="folder for tables and figure")
    options = parser.parse_args(arguments)
    for path in write_report(options.folders, options.output):
        print(path)
        if path.suffix == ".md":
            print(path.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
