#!/usr/bin/env python3
"""Make the tables of the documentation: of the rows' configurations, and of the results.

    scripts/tables.py    # writes them into docs/, with the figure of the results

A page marks the place of a table by two lines; what is between them is replaced. The numbers of
parameters are those of the papers' formulas, and a test compares the formulas with the models.
"""

import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from capsnmt.cli import ConfigurationError, run_command
from capsnmt.configurations import load, read, rows_of
from capsnmt.evaluation.significance import corrected_together
from capsnmt.files import bundled_folder, write_all
from capsnmt.pages.plots import drawing, images
from capsnmt.report.figures import differences
from scripts import composition, result_tables
from scripts.paper_rows import PAPERS, PaperRow, load_rows, reported_difference
from scripts.parameter_formulas import extra_parameters


def parameters() -> str:
    """Return what each row adds to its baseline, by paper, and why some counts differ."""
    rows = load_rows()
    notes: Dict[str, int] = {}
    lines: List[str] = []
    for paper in dict.fromkeys([*PAPERS, *(row.paper for row in rows.values())]):
        cells = [["row", "table", "flags", "reported", "exact"]]
        for row in rows.values():
            if row.paper == paper and row.reported.baseline:
                cells.append(parameter_cells(row, notes))
        if cells[1:]:
            lines += [f"### {PAPERS.get(paper, paper)}", "", markdown(cells), ""]
    reasons = [f"{number}. {note[0].upper()}{note[1:]}." for note, number in notes.items()]
    return "".join(f"{line}\n" for line in [*lines, *reasons])


def parameter_cells(row: PaperRow, notes: Dict[str, int]) -> List[str]:
    """Return one line of a table of parameters; ``notes`` are numbered as they appear."""
    difference, note = reported_difference(row), row.reported.note
    mark = f" ({notes.setdefault(note, len(notes) + 1)})" if note else ""
    flags = row.command().replace("--arch capsnmt_transformer ", "")
    return [
        f"`{row.key}`",
        row.reported.table,
        f"`{flags}`",
        difference.text if difference else "",
        f"{extra_parameters(row):+,}{mark}",
    ]


def configurations() -> str:
    """Return every row of each dataset with its place in a paper and the reported BLEU."""
    rows = load_rows()
    lines: List[str] = []
    for dataset in dict.fromkeys(row.dataset for row in rows.values()):
        cells = [["row", "table", "name there", "BLEU", "baseline"]]
        for row in (row for row in rows.values() if row.dataset == dataset):
            cells.append([f"`{row.name}`", place(row), row.reported.name, *bleu(row)])
        lines += [f"### {dataset}", "", markdown(cells), ""]
    return "".join(f"{line}\n" for line in lines[:-1])


def other_rows() -> str:
    """Return the rows of the data sets of which no paper reports BLEU."""
    reported = {row.dataset for row in load_rows().values()}
    cells = [["data set", "rows"]]
    for path in sorted(bundled_folder("configs").glob("*/baseline.yaml")):
        if path.parent.name not in reported:
            names = ", ".join(f"`{row}`" for row in rows_of(path.parent.name))
            cells.append([f"`{path.parent.name}`", names])
    return f"{markdown(cells)}\n"


def settings() -> str:
    """Return the settings of each paper, by dataset."""
    cells = [["settings", "tokens per update", "updates", "learning rate", "dropout", "search"]]
    for dataset in dict.fromkeys(row.dataset for row in load_rows().values()):
        for path in sorted((bundled_folder("configs") / dataset).glob("*.yaml")):
            if not read(path).get("paper"):
                cells.append([f"`{dataset}/{path.stem}`", *setting_cells(load(path))])
    return f"{markdown(cells)}\n"


def setting_cells(found: Mapping[str, Any]) -> List[str]:
    """Return one line of the table of settings."""
    train, generate = found["train"], found["generate"]
    shape = {
        "inverse_sqrt": f"inverse square root, peak {train['lr']}",
        "cosine": f"cosine, {train['lr']} to {train.get('min-lr')}",
    }[train["lr-scheduler"]]
    return [
        f"{found['batch']['tokens-per-update']:,}",
        f"{train['max-update']:,}",
        f"{shape}, warm-up {train['warmup-updates']:,}",
        f"{train['dropout']}",
        f"beam {generate['beam']}, length penalty {generate['lenpen']}",
    ]


def place(row: PaperRow) -> str:
    """Return where the row is reported first."""
    return f"{PAPERS.get(row.paper, row.paper)}, {row.reported.table}"


def bleu(row: PaperRow) -> List[str]:
    """Return the reported BLEU, and the baseline with its own, on the same set."""
    ours, theirs = row.reported, row.baseline.papers[row.paper]
    test = ours.bleu is not None
    score, reference = (
        (ours.bleu, theirs.bleu) if test else (ours.validation_bleu, theirs.validation_bleu)
    )
    where = "" if test else " (validation)"
    if score is None:  # a comparison system, which no paper reports
        return ["", f"`{ours.baseline}`" if ours.baseline else ""]
    baseline = f"`{ours.baseline}` {reference:.2f}" if ours.baseline else ""
    return [f"{score:.2f}{where}", baseline]


def markdown(cells: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first line is its head."""
    head, *others = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join([head, "|" + "---|" * len(cells[0]), *others])


END = "<!-- end -->\n"
DOCS = Path(__file__).resolve().parent.parent / "docs"
# page -> its tables, each between a line with its name and END
PAGES = {
    DOCS / "parameters.md": [parameters],
    DOCS / "composition.md": [composition.suite],
    DOCS / "configurations.md": [settings, other_rows, configurations],
    DOCS / "results.md": [
        result_tables.differences_to_baseline,
        result_tables.finished,
        result_tables.costs,
        result_tables.other_texts,
    ],
}


def with_tables(page: Path) -> str:
    """Return a page with its tables made anew.

    Raises:
        ConfigurationError: the place of a table is not marked.
    """
    text = page.read_text("utf-8")
    for make in PAGES[page]:
        begin = f"<!-- {make.__name__}: made by scripts/tables.py -->\n"
        before, found, rest = text.partition(begin)
        _, end, after = rest.partition(END)
        if not (found and end):
            raise ConfigurationError(
                f"{page}: the place of {make.__name__} is not marked; write the lines "
                f"'{begin.strip()}' and '{END.strip()}' there"
            )
        text = f"{before}{begin}{make()}{END}{after}"
    return text


def main() -> None:
    """Write the tables into the pages, and the figure of the results beside them."""
    contents = {page: with_tables(page).encode("utf-8") for page in PAGES}
    with drawing():
        figure = differences(corrected_together(result_tables.kept_comparisons(), "bleu"))
        contents[DOCS / "figures" / "differences.png"] = images(figure)["png"]
    write_all(contents)


if __name__ == "__main__":
    sys.exit(run_command(main))
