"""Make the summary and the figure of ``docs/results.md`` from its tables and that of the speed.

python -m scripts.results_page
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from capsnmt.files import write_all
from capsnmt.pages.page import Markdown, Table
from capsnmt.pages.plots import COLOURS, INK, drawing, figure_of, images

DOCS = Path(__file__).parents[1] / "docs"
PAGE, FIGURE = DOCS / "results.md", DOCS / "figures" / "evidence.png"
SPEED = DOCS / "speed_measurements.md"
BEGIN, END = "<!-- made by scripts/results_page.py -->\n", "<!-- end -->\n"
TEST_SETS = ("test_2016_flickr", "test_2017_flickr")
T_OF_THREE = 4.303  # 97.5% quantile of Student's t with two degrees of freedom
LOWEST, HIGHEST = -5, 4.2  # BLEU; a row outside is named at the edge
Rows = Dict[str, Dict[str, str]]  # row -> header of a column -> cell


def tables(text: str) -> Iterator[Tuple[str, Rows]]:
    """Yield the first cell of each table's header, and its rows."""
    for found in re.findall(r"(?m)((?:^\|.*\n)+)", text):
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found.splitlines()]
        header, _, *lines = cells
        yield header[0], {line[0].strip("`"): dict(zip(header, line)) for line in lines}


def differences(text: str) -> Dict[str, List[List[float]]]:
    """Return row -> for both test sets, the difference in BLEU to its baseline of each seed."""
    found = dict(tables(text))
    by_seed = found["difference of seeds 1, 2, 3"]
    rows = {
        row: [[float(each.replace("−", "-")) for each in cells[x].split()] for x in TEST_SETS]
        for row, cells in by_seed.items()
    }
    for title in ("seed 1, from scratch", "seed 1, from the baseline"):
        (_, baseline), *others = found[title].items()
        for row, cells in others:
            if row not in rows:
                columns = [f"{test_set} BLEU" for test_set in TEST_SETS]
                rows[row] = [[round(float(cells[x]) - float(baseline[x]), 2)] for x in columns]
    return rows


def summary(text: str) -> str:
    """Return the table of all rows: differences to the baseline, and speed."""
    speed = dict(tables(SPEED.read_text("utf-8")))["row, updates per second"]

    def cell(values: List[float]) -> str:
        mean = f"{statistics.fmean(values):+.2f}"
        ends = f" ({min(values):+.2f} to {max(values):+.2f})" if len(values) > 1 else ""
        return f"{mean}{ends}".replace("-", "−")

    lines = [
        [
            Markdown(f"`{row}`"),
            len(both[0]),
            *map(cell, both),
            speed.get(row, {}).get("of the baseline", ""),
        ]
        for row, both in differences(text).items()
    ]
    header = ["row", "seeds", *(f"Δ BLEU {x}" for x in TEST_SETS), "speed"]
    return f"{Table([*map(Markdown, header)], lines, numeric=1)}\n"


def draw(text: str) -> Any:
    """Draw the differences: a dot is a seed, a bar the 95% interval of the mean of three."""
    rows = differences(text)
    figure = figure_of(5.2)
    for axes, place, test_set in zip(figure.subplots(1, 2, sharey=True), (0, 1), TEST_SETS):
        axes.axvline(0, color=INK, linewidth=1)
        for y, both in enumerate(rows.values()):
            values = both[place]
            mean, several = statistics.fmean(values), len(values) > 1
            colour = COLOURS[0] if several else COLOURS[1]
            if mean < LOWEST:
                numbers = f"{min(values):.1f} to {max(values):.1f}".replace("-", "−")
                axes.annotate(f"◀ {numbers}", (LOWEST + 0.1, y), color=colour, va="center")
                continue
            if several:
                reach = T_OF_THREE * statistics.stdev(values) / len(values) ** 0.5
                axes.errorbar(mean, y, xerr=reach, color=colour, capsize=4, linewidth=2)
            style = "o" if several else "D"
            axes.plot(values, [y] * len(values), style, color=colour, markersize=5)
        axes.set_xlim(LOWEST, HIGHEST)
        axes.set_title(test_set)
        axes.grid(axis="x", alpha=0.2)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    label = "three seeds, with the 95% interval of their mean"
    axes.plot([], [], "o-", color=COLOURS[0], markersize=5, label=label)
    axes.plot([], [], "D", color=COLOURS[1], markersize=5, label="one seed")
    figure.suptitle("difference in BLEU to the baseline of the same seed", fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def main() -> None:
    """Write the summary into the page, and the figure beside it."""
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    page = f"{before}{BEGIN}{summary(text)}{END}{rest.partition(END)[2]}"
    with drawing():
        picture = images(draw(text))["png"]
    write_all({PAGE: page.encode("utf-8"), FIGURE: picture})


if __name__ == "__main__":
    main()
