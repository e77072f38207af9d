"""The tables of ``docs/results.md``, made from ``results/`` and the measured speeds."""

import math
import re
from pathlib import Path
from typing import Dict, List, Sequence

from capsnmt import records
from capsnmt.evaluation.scores import MULTI_BLEU, Comparison, spread
from capsnmt.evaluation.significance import corrected_together
from capsnmt.pages.page import Markdown, Table
from capsnmt.report.tables import difference_cell, interval_cell, p_cell
from capsnmt.runs.finished import FinishedRun
from scripts.results import COMPARISONS, kept_rows

REPO = Path(__file__).parents[1]
SPEED = REPO / "docs" / "speed_measurements.md"
MAIN = "multi30k_lowercase"  # the data set of most rows, whose tables are apart


def speeds() -> Dict[str, str]:
    """Return row -> its measured speed, over the baseline's."""
    text = SPEED.read_text("utf-8").partition("| row, updates per second, published recipe |")[2]
    return dict(re.findall(r"\| `(\w+)` \| [^|]+ \| (\S+) \|", text.partition("\n\n")[0]))


def other_texts() -> str:
    """Return the tables of the other data sets of which a row beside the baseline is kept."""
    folders = sorted(path.parent for path in (REPO / "results").glob(f"*/{COMPARISONS}"))
    parts = [
        f"### {folder.name}\n\n{differences_to_baseline(folder.name)}\n{finished(folder.name)}\n"
        f"{costs(folder.name)}"
        for folder in folders
        if folder.name != MAIN and kept_comparisons(folder.name)
    ]
    return "\n".join(parts)


def finished(dataset: str = MAIN) -> str:
    """Return the table of the finished trainings, and the mean of each row with several seeds."""
    rows, lines = kept_rows(REPO / "results" / dataset), []
    tests = [*next(iter(rows.values()))[0].settings.data.test_sets]
    for row, runs in rows.items():
        of_row = []
        for run in runs:
            known = records.load(run.folder.path / "facts.json")
            updates, most = known["updates"], run.settings.updates
            scores = [
                run.output(x).scores[metric].score for metric in (MULTI_BLEU, "chrf") for x in tests
            ]
            of_row.append(scores)
            lines.append(
                [
                    Markdown(f"`{row}`"),
                    str(run.seed),
                    f"{updates:,} of {most:,} ({run.curve.epoch} epochs)",
                    known["ended-by"],
                    *(f"{score:.2f}" for score in scores),
                    re.findall(r"commit (\w{8})", run.training.versions["capsnmt"])[0],
                ]
            )
        if len(runs) > 1:
            cells = [mean_of(scores) for scores in zip(*of_row)]
            seeds = ", ".join(str(run.seed) for run in runs)
            lines.append([Markdown(f"`{row}`"), seeds, "", "", *cells, ""])
    header = ["row", "seed", "updates", "ended by"]
    header += [f"{metric} {x}" for metric in ("tokenised BLEU", "chrF2") for x in tests]
    header.append("commit")
    return f"{Table([*map(Markdown, header)], lines, numeric=4)}\n"


def costs(dataset: str = MAIN) -> str:
    """Return the table of what each row costs, and its lowest validation loss.

    Δ is the difference to the baseline of the same seed: until both end, until as many updates as
    the baseline made, and until the row's share of them, which it makes in the time of the
    baseline. Updates of an initial model count. The speeds were measured on the main data set.
    """
    known = speeds() if dataset == MAIN else {}
    rows, lines = kept_rows(REPO / "results" / dataset), []
    baselines = {run.seed: run for run in rows["baseline"]}
    for row, runs in rows.items():
        speed = known.get(row, "")  # of some it is not measured
        cells = [mean_of([lowest_loss(run) for run in runs], ".3f")]
        for share in (None, 1.0, float(speed) if speed else 0.0):
            found = []
            for run in (each for each in runs if each.seed in baselines):
                baseline, initial = baselines[run.seed], run.training.initial
                left = baseline.curve.updates - (0 if initial is None else initial.updates)
                most = math.inf if share is None else share * left
                if most >= min(run.curve.valid):
                    found.append(lowest_loss(run, most) - lowest_loss(baseline))
            cells.append(mean_of(found, "+.3f") if found and row != "baseline" else "")
        lines.append([Markdown(f"`{row}`"), len(runs), f"{runs[0].parameters:,}", speed, *cells])
    header = ["row", "seeds", "parameters", "speed", "valid loss"]
    header += [f"Δ valid loss{what}" for what in ("", ", equal updates", ", equal time")]
    return f"{Table([*map(Markdown, header)], lines, numeric=1)}\n"


def mean_of(values: Sequence[float], form: str = ".2f") -> str:
    """Return the mean over seeds, and the deviation of several, as a cell that does not wrap."""
    found = spread(values)
    deviation = "" if found.std is None else f"\u00a0±\u00a0{found.std:{form.strip('+')}}"
    return f"{found.mean:{form}}{deviation}".replace("-", "−")


def lowest_loss(run: FinishedRun, updates: float = math.inf) -> float:
    """Return the lowest validation loss within so many updates."""
    return min(loss for update, loss in run.curve.valid.items() if update <= updates)


def kept_comparisons(dataset: str = MAIN) -> Dict[str, List[Comparison]]:
    """Return the comparisons of the kept rows, by test set, and of the mean over the sets."""
    path = REPO / "results" / dataset / COMPARISONS
    return records.read(path, Dict[str, List[Comparison]])


def differences_to_baseline(dataset: str = MAIN) -> str:
    """Return the table of all rows against the baseline, in BLEU and chrF.

    Marks are by Holm's correction over all tests of the table in BLEU, and over all in chrF.
    """
    found = kept_comparisons(dataset)
    cells: Dict[str, Dict[str, List[str]]] = {}
    for metric in ("bleu", "chrf"):
        for test, rows in corrected_together(found, metric).items():
            for row, one in rows.items():
                cells.setdefault(row, {}).setdefault(test, []).extend(
                    [
                        f"{difference_cell(one.delta)}{one.mark}",
                        interval_cell(one.interval),
                        p_cell(one.p_value),
                        *([p_cell(one.corrected_p_value)] if metric == "bleu" else []),
                    ]
                )
    seeds = {each.system: each.seeds[0] for of_set in found.values() for each in of_set}
    lines = [
        [Markdown(f"`{row}`"), str(seeds[row]), test, *of_row[test]]
        for row, of_row in sorted(cells.items())
        for test in found
    ]
    header = ["row", "seeds", "test set", "Δ BLEU", "95%", "p", "p, Holm", "Δ chrF2", "95%", "p"]
    return f"{Table([*map(Markdown, header)], lines, numeric=3)}\n"
