"""What a report says about translation runs."""

import functools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from capsnmt.cli import ConfigurationError, say
from capsnmt.configurations import Scoring
from capsnmt.corpora.prepared import DataManifest, PreparedData
from capsnmt.evaluation.outputs import read_lines
from capsnmt.evaluation.scores import COMPARABLE, Comparison, common_metrics
from capsnmt.evaluation.significance import corrected_together
from capsnmt.evaluation.table import said_of_seeds
from capsnmt.evaluation.test_set import check_count
from capsnmt.files import content_of, sha256
from capsnmt.pages.page import Markdown, Table, code
from capsnmt.pages.plots import Figures
from capsnmt.report import tables
from capsnmt.report.figures import differences, learning_curves, means_by_category
from capsnmt.report.tables import Runs
from capsnmt.runs.comparison import compare_rows, read_translations
from capsnmt.runs.finished import FinishedRun, check_comparable, distinct_names, signatures
from capsnmt.runs.trained_rows import (
    FinishedSweep,
    TrainedRow,
    find_sweeps,
    group,
    incomparable,
    source_lengths,
)

SEED = 1  # draws the sample translations
ANALYSES = ("analysis.html", "analysis/analysis.html")  # where capsnmt-analyse may have written


def translation(runs: Sequence[FinishedRun], sample_count: int) -> Tuple[Dict[str, Any], Figures]:
    """Return the values of the template and the figures of translation runs, the baseline first."""
    check_comparable(runs)
    rows, named, test_sets = group(runs), dict(zip(distinct_names(runs), runs)), [*runs[0].scores]
    settings, manifest = runs[0].settings, PreparedData(runs[0].data).read_manifest()
    curves = {row.name: [run.curve for run in row.runs] for row in rows}
    figures: Figures = {"learning_curve": functools.partial(learning_curves, curves)}
    updates = [run.curve.updates for run in runs]
    values: Dict[str, Any] = {
        "title": f"{settings.dataset or 'Experiment'}, {' to '.join(settings.languages)}",
        "rows": rows,
        "seeds": max(len(row.runs) for row in rows),
        "as_translated": any(
            (run.settings.score or Scoring()).detokenize == "none" for run in runs
        ),
        "penalised": any("disagreement" in run.settings.train for run in runs),
        "updates": [f"{n:,}" for n in sorted({min(updates), max(updates)})],
        "different": list(incomparable(rows)),
        "sweeps": [_sweep(x, name, figures) for x in find_sweeps(runs) for name in test_sets],
        "test_sets": [_test_set(name, rows, named, figures) for name in test_sets],
        "training": tables.training(named),
        "settings": tables.settings(rows),
        "samples": {
            name: list(_samples(rows, name, sample_count)) for name in test_sets if sample_count
        },
        "manifest": manifest,
        "prepared_again": not _is_trained_on(runs[0], manifest),
        "pairs": _pairs(manifest.lines, settings.languages[0]),
    }
    # last: what is missing or wrong is said by what needs it
    data, target = PreparedData(rows[0].runs[0].data), settings.languages[1]
    references = {name: data.references(name, target) for name in test_sets}
    found = compare_rows(rows, references) if len(rows) > 1 else None
    compared: Dict[str, Dict[str, Comparison]] = {}
    values["compared"] = None
    if found is not None:
        places = {name: each.comparisons for name, each in found.test_sets.items()}
        if len(places) > 1:
            places[f"mean of {len(places)}"] = found.comparisons
        compared = corrected_together(places, "bleu")
        of_chrf = corrected_together(places, "chrf")
        figures["differences"] = functools.partial(differences, compared)
        values["compared"] = tables.comparisons({"bleu": compared, "chrf": of_chrf})
        shown = [each for of_set in compared.values() for each in of_set.values()]
        values["explanations"] = list(explanations(shown))
        values["family"] = sum(each.p_value is not None for each in shown)
    values["results"] = tables.results(rows, test_sets, compared)
    return values, figures


def analysis_of(folder: Path, runs: Sequence[FinishedRun]) -> Optional[Dict[str, Any]]:
    """Return the page of an analysis of some of these models, with their names; else ``None``."""
    models = [(name, run.model) for name, run in zip(distinct_names(runs), runs)]
    for page in ANALYSES:
        if (folder / page).is_file():
            text = (folder / page).read_text("utf-8")
            found = [x for x, path in models if path.is_file() and sha256(path)[:12] in text]
            if found:
                return {"page": page, "models": found}
            say(f"warning: {folder / page} is of none of these models, and not linked; renew it")
    return None


def _is_trained_on(run: FinishedRun, manifest: DataManifest) -> bool:
    """Return whether prepared data are those of a training, as far as both records say."""
    known = {**run.training.vocabulary, **run.training.data}
    files = {Path(name).name: each.sha256 for name, each in manifest.files.items()}
    return all(files[name] == content_of(known[name]) for name in files.keys() & known.keys())


def _test_set(
    name: str, rows: Sequence[TrainedRow], runs: Runs, figures: Figures
) -> Dict[str, Any]:
    """Return the values of one test set, and add its figure."""
    outputs = [run.output(name) for run in runs.values()]
    shown = common_metrics(outputs)
    evaluation = rows[0].runs[0].scores[name]
    several = f", {len(evaluation.references)} references" if evaluation.references else ""
    unit, counts = source_lengths(rows, name) or ("", {})
    found = {row.name: row.by_length(name) for row in rows}
    lengths = tables.by_category(found, [*counts])
    if counts:
        figures[f"bleu_by_length-{name}"] = functools.partial(
            means_by_category,
            found,
            {bucket: f"{bucket}\n({count:,})" for bucket, count in counts.items()},
            (f"length of the source in {unit} (sentences)", "BLEU"),
        )
    return {
        "name": name,
        "segments": f"{evaluation.segments:,} sentences{several}",
        "scores": tables.scores(runs, name, shown),
        "signatures": [
            (label, COMPARABLE.get(key), map(code, signatures(runs.values(), name, key)))
            for key, label in shown.items()
        ],
        "unit": unit,
        "lengths": replace(
            lengths, rows=[["sentences", *(f"{n:,}" for n in counts.values())], *lengths.rows]
        ),
    }


def _sweep(sweep: FinishedSweep, test_set: str, figures: Figures) -> Dict[str, Any]:
    """Return the values of a sweep on a test set, and add its figure."""
    baselines = {
        # the row that is swept, with its own value, may be the baseline
        f"{row.name} (baseline)" if row.name in sweep.curves else row.name: row.score(test_set)
        for row in sweep.baselines
    }
    curves = {
        name: {label: row.score(test_set) for label, row in rows.items()}
        for name, rows in sweep.curves.items()
    }
    figure = f"sweep-{sweep.flag}-{test_set}"
    figures[figure] = functools.partial(
        means_by_category,
        curves,
        dict(zip(sweep.labels, sweep.labels)),
        (f"--{sweep.flag}", "BLEU"),
        baselines,
    )
    constant = {name: dict.fromkeys(sweep.labels, score) for name, score in baselines.items()}
    return {
        "flag": sweep.flag,
        "test_set": test_set,
        "figure": figure,
        "table": tables.by_category({**constant, **curves}, sweep.labels),
        "has_baseline": bool(baselines),
    }


def _samples(rows: Sequence[TrainedRow], test_set: str, count: int) -> Iterator[Table]:
    """Yield random sentences of a test set as the first seed of every row translated them.

    **D**: the draw depends only on the size of the test set, never on the translations, so nobody
    can choose the sentences.
    """
    firsts = {row.name: row.runs[0] for row in rows}
    languages, data = rows[0].runs[0].settings.languages, PreparedData(rows[0].runs[0].data)
    paths = [data.raw(test_set, languages[0]), *data.references(test_set, languages[1])]
    raw = [*map(str, paths)]
    for path in (*paths, *(run.folder.generated(test_set) for run in firsts.values())):
        if not path.is_file():
            raise ConfigurationError(
                f"{path} is not there, of which samples are shown; restore it, or give --samples 0"
            )
    rows[0].runs[0].check_references(test_set, paths[1:])
    source, *references = map(read_lines, raw)
    outputs = {name: read_translations(run, test_set) for name, run in firsts.items()}
    texts = {raw[0]: source, **{each.label: each.hypotheses for each in outputs.values()}}
    for label, text in texts.items():
        check_count(label, text, raw[1], references[0])
    numbers = random.Random(SEED).sample(range(len(source)), min(count, len(source)))
    for number in sorted(numbers):
        yield Table(
            [f"{number}, source ({languages[0]})", source[number]],
            [
                *([f"reference ({languages[1]})", each[number]] for each in references),
                *(
                    [name, each.hypotheses[number] or Markdown("*(empty)*")]
                    for name, each in outputs.items()
                ),
            ],
        )


def _pairs(lines: Mapping[str, int], language: str) -> Table:
    """Return the number of sentence pairs of each text of the prepared data."""
    texts = {
        name.rpartition(f".{language}")[0]: count
        for name, count in lines.items()
        if name.startswith(("raw/", "clean/", "limited/")) and name.endswith(f".{language}")
    }
    rows = [[code(text), f"{count:,}"] for text, count in texts.items()]
    return Table(["text", "sentence pairs"], rows, numeric=1)


def explanations(compared: Sequence[Comparison]) -> Iterator[str]:
    """Yield what the p of some comparisons are over, and what they cannot say."""
    yield from said_of_seeds(compared)
    if any(each.sentences_p_value is not None for each in compared):
        yield (
            "p of seeds alone is Welch's, of sentences alone the centred bootstrap's; marks are of "
            "the larger of p and the last"
        )
    if any(each.seeds == (1, 1) for each in compared):
        yield (
            "p of one output each is over sentences, by paired approximate randomization: it says "
            "nothing of other seeds"
        )
    yield "Holm's correction is over the tests of all rows and test sets, of each metric"
