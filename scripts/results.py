"""Keep what finished runs leave behind: records, log, curve, translations, scores, models.

``results/DATASET/ROW/seed-N`` is the folder of a run with all that is needed to score it again. A
model is kept where it is asked for, with the data that its text needs in ``results/DATASET/data``.

    python -m scripts.results RUNS                    # list the runs below RUNS
    python -m scripts.results RUNS --keep results     # and keep the finished ones
    python -m scripts.results RUNS --keep results --models ROW/seed-1,ROW/seed-3
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from msgspec.structs import replace

from capsnmt import records
from capsnmt.cli import ConfigurationError, OneLineParser, comma_list, run_command
from capsnmt.configurations import Scoring
from capsnmt.corpora.prepared import MANIFEST, PreparedData
from capsnmt.evaluation.evaluate import evaluate, evaluate_sets
from capsnmt.evaluation.scores import METRICS, MULTI_BLEU, Comparison
from capsnmt.evaluation.significance import corrected_together
from capsnmt.evaluation.text import TextFormat, text_format
from capsnmt.files import atomic_writer, replacing, sha256, without_folders
from capsnmt.runs.comparison import read_translations, settings_of
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.learning_curve import LearningCurve, read_learning_curve
from capsnmt.runs.records import RunConfig, RunFolder
from capsnmt.runs.trained_rows import check_one_row

DIFFERENCES = "differences.json"  # test set -> the evaluation of a run against the baseline
COMPARISONS = "comparisons.json"  # test set, or "mean" -> all rows against the baseline


def find_runs(folder: Path) -> Iterator[RunFolder]:
    """Yield the started runs below a folder in the order of their names, the baseline first."""
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is no folder; give that of all rows")
    found = (config.parent for config in folder.glob("*/seed-*/config.json"))
    for path in sorted(found, key=lambda each: (each.parent.name != "baseline", each)):
        yield RunFolder(path)


def reason_of_end(config: RunConfig, curve: LearningCurve) -> str:
    """Return why a finished training ended."""
    train = config.settings.train
    for flag, made in (("max-update", curve.updates), ("max-epoch", curve.epoch)):
        if made >= int(train.get(flag) or sys.maxsize):
            return f"{flag} {train[flag]}"
    others = ("patience", "stop-min-lr", "stop-time-hours")
    return " or ".join(f"{flag} {train[flag]}" for flag in others if flag in train)


def facts(run: FinishedRun) -> Dict[str, Any]:
    """Return what a reader asks about a finished training."""
    curve = run.curve
    best = min(curve.valid, key=curve.valid.__getitem__, default=None)  # validation may be disabled
    return {
        "updates": curve.updates,
        "ended-by": reason_of_end(run.config, curve),
        "seconds": curve.training_seconds,
        "words-per-second": curve.tokens_per_second,
        "peak-memory-gib": curve.peak_memory,
        "best-valid-loss": None if best is None else {"loss": curve.valid[best], "update": best},
    }


def write_table(path: Path, points: Dict[int, float]) -> None:
    """Write a curve as two columns."""
    with atomic_writer(path) as file:
        file.write("update\tloss\n")
        file.writelines(f"{update}\t{loss}\n" for update, loss in sorted(points.items()))


def keep(place: RunFolder, folder: Path) -> None:
    """Write the results of the finished run in ``place`` to a folder."""
    run, kept = FinishedRun(place.path), RunFolder(folder)
    for other in sorted(folder.parent.glob("seed-*/config.json")):
        check_one_row(FinishedRun(other.parent), run, "keep it elsewhere, or delete what is kept")
    folder.mkdir(parents=True, exist_ok=True)
    kept.config.unlink(missing_ok=True)  # which says that all else is there
    records.write(kept.scores, without_folders(records.load(place.scores)))
    records.write(folder / "facts.json", facts(run))
    write_table(folder / "train-loss.tsv", run.curve.train)
    write_table(folder / "valid-loss.tsv", run.curve.valid)
    language = run.settings.languages[1]
    for test_set in run.settings.data.test_sets:
        with atomic_writer(folder / f"{test_set}.{language}") as file:
            lines = read_translations(run, test_set).tokens
            file.writelines(f"{line}\n" for line in lines)
    for path in (place.training, place.train_log):
        shutil.copyfile(path, folder / path.name)
    # last: what has it is complete; the data are beside the rows
    config = replace(run.config, data=str(Path("..", "..", "data")), sources=None)
    records.write(kept.config, without_folders(records.plain(config)))


def kept_rows(folder: Path) -> Dict[str, List[FinishedRun]]:
    """Return the kept runs of each row of a dataset, the baseline's first."""
    rows: Dict[str, List[FinishedRun]] = {}
    for path in sorted(folder.glob("*/seed-*/config.json")):
        run = FinishedRun(path.parent)
        rows.setdefault(run.row, []).append(run)
    return dict(sorted(rows.items(), key=lambda each: (each[0] != "baseline", each[0])))


def reckon(folder: Path, data: PreparedData) -> None:
    """Compare all kept rows of a dataset with the baseline, whose folder is beside them.

    Each run has the record of ``capsnmt-evaluate --input plain ROW --baseline BASELINE`` against
    the baseline of its seed. :data:`COMPARISONS` has each row over its seeds and the test sets; a
    row with one seed is compared with the baseline of that seed.
    """
    kept = kept_rows(folder)
    baseline = kept.pop("baseline", [])
    if not baseline:
        return
    language = baseline[0].settings.languages[1]
    tests = baseline[0].settings.data.test_sets
    references = {test: data.references(test, language) for test in tests}
    for run in (run for runs in [baseline, *kept.values()] for run in runs):
        for test, paths in references.items():
            run.check_references(test, paths)
    for run in (run for runs in kept.values() for run in runs):
        write_differences(run.folder.path, references)
    several = {row: runs for row, runs in kept.items() if len(runs) > 1}
    found = compared({"baseline": baseline, **several}, references) if several else {}
    for row, (run, *others) in kept.items():
        same = [each for each in baseline if each.seed == run.seed]
        if same and not others:
            for test, one in compared({"baseline": same, row: [run]}, references).items():
                found.setdefault(test, []).extend(one)
    both = [corrected_together(found, metric) for metric in ("bleu", "chrf")]
    together = {test: [x for each in both for x in each[test].values()] for test in found}
    records.write(folder / COMPARISONS, together)


def compared(
    rows: Mapping[str, Sequence[FinishedRun]], references: Mapping[str, Sequence[Path]]
) -> Dict[str, List[Comparison]]:
    """Compare kept rows with the first, on each test set and over all of them."""
    settings, first = {}, next(iter(rows.values()))[0]
    for test, paths in references.items():
        name = f"{test}{paths[0].suffix}"
        files = {row: [run.folder.path / name for run in runs] for row, runs in rows.items()}
        settings[test] = settings_of(files, paths, kept_text(first, paths[0]))
    found = evaluate_sets(settings)
    of_sets = {test: each.comparisons for test, each in found.test_sets.items()}
    return {**of_sets, "mean": found.comparisons} if len(of_sets) > 1 else of_sets


def kept_text(run: FinishedRun, reference: Path) -> TextFormat:
    """Return the form of kept translations."""
    score = run.settings.score or Scoring()
    generated = text_format("generate", score.remove_bpe, score.detokenize)
    return text_format("plain", None, generated.detokenize, reference.suffix[1:])


def write_differences(folder: Path, references: Mapping[str, Sequence[Path]]) -> None:
    """Score a kept run against the kept baseline of its seed, where there is one."""
    baseline = folder.parents[1] / "baseline" / folder.name
    if not baseline.exists():
        return
    found = {}
    for test_set, paths in references.items():
        name = f"{test_set}{paths[0].suffix}"
        files = {each.parent.name: [each / name] for each in (baseline, folder)}
        text = kept_text(FinishedRun(folder), paths[0])
        settings = settings_of(files, paths, text, [*METRICS])
        found[test_set] = records.plain(evaluate(settings))
    records.write(folder / DIFFERENCES, without_folders(found))


CARD = """\
# `{dataset}/{row}`

| | |
|---|---|
| use | `capsnmt-translate {dataset}/{row} < text.{source} > text.{target}` |
| text | raw, one sentence per line; tokens by `{tokeniser}` |
| model | `{arch}`, {parameters:,} parameters in half precision |
| training | `configs/{dataset}/{row}.yaml`, seed {seed}; `facts.json`, `training.json` |
| data | {description}: {pairs:,} pairs |
| score | {state} |
| SHA-256 | `{checksum}` |

It knows text like its data and little else. The terms of the data bind whoever uses it:
[results](../../../README.md).
"""


def keep_model(place: RunFolder, folder: Path) -> None:
    """Write the model of a finished run in half precision, its card, and what its text needs."""
    import torch

    from capsnmt.checkpoints.load import load_trained, save_checkpoint

    run = FinishedRun(place.path)
    data, beside = PreparedData(run.data), folder.parents[1] / "data"
    manifest = data.read_manifest()
    names = {*manifest.models.values(), *(f"bin/dict.{side}.txt" for side in manifest.languages)}
    for name in sorted(names):
        if (beside / name).exists() and sha256(beside / name) != sha256(data.folder / name):
            raise ConfigurationError(
                f"{beside / name} is of another model; keep this one in another folder, or delete "
                f"what is kept"
            )
    model = RunFolder(folder).model(run.config)
    trained = load_trained(run.model)
    halves: Dict[int, Any] = {}  # tied parameters stay one tensor in the file
    for name, tensor in trained["model"].items():
        if tensor.is_floating_point():
            half = halves.setdefault(tensor.data_ptr(), tensor.to(torch.float16))
            trained["model"][name] = half
    trained.pop("last_optimizer_state", None)
    save_checkpoint(without_folders(trained), model)

    for name in names:
        with replacing(beside / name) as part:
            shutil.copyfile(data.folder / name, part)
    kept = {name: record for name, record in manifest.files.items() if name in names}
    command = shlex.join(without_folders(shlex.split(manifest.command)))
    records.write(beside / MANIFEST, replace(manifest, files=kept, command=command))

    source, target = run.settings.languages
    card = CARD.format(
        dataset=run.settings.dataset,
        row=run.row,
        source=source,
        target=target,
        tokeniser=manifest.tokenisers.get(source, "unknown"),
        arch=run.settings.arch,
        parameters=run.parameters,
        seed=run.seed,
        description=manifest.description,
        pairs=manifest.pairs,
        state=state(place),
        checksum=sha256(model),
    )
    with atomic_writer(folder / "README.md") as file:
        file.write(card)


def state(folder: RunFolder) -> str:
    """Return how far a run is, in words."""
    if folder.is_finished:
        run = FinishedRun(folder.path)
        if run.settings.classifies:
            return f"finished, accuracy: {run.measures.accuracy:.2f}"
        scores = {x: run.output(x).scores for x in run.scores}
        shown = {MULTI_BLEU: "tokenised BLEU", "bleu": "BLEU", "chrf": "chrF2"}
        known = [key for key in shown if all(key in y for y in scores.values())]
        if MULTI_BLEU in known:  # not of languages without spaces between words
            known.remove("bleu")
        found = [
            f"{x} {', '.join(f'{y[key].score:.2f}' for key in known)}" for x, y in scores.items()
        ]
        return f"finished, {' and '.join(shown[key] for key in known)}: {'; '.join(found)}"
    try:
        return f"at update {read_learning_curve(folder.train_log).updates:,}"
    except ConfigurationError:  # before the first entry of its log
        return "begun"


def main() -> None:
    """List the runs below a folder, and keep the results of those that are finished."""
    parser = OneLineParser(description=main.__doc__)
    parser.add_argument("runs", type=Path, help="the folder of all rows")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where results are kept")
    parser.add_argument(
        "--models", type=comma_list(), default=[], metavar="ROW/seed-N,...", help="to keep as well"
    )
    options = parser.parse_args()
    unknown = {*options.models}
    keeping = None if options.keep is None else options.keep.absolute()  # records have no folders
    datasets: Dict[Path, PreparedData] = {}
    for folder in find_runs(options.runs):
        config = folder.read_config()
        print(f"{config.row}, seed {config.seed}: {state(folder)}")
        name = f"{config.row}/seed-{config.seed}"
        kept = keeping is not None and folder.is_finished and not config.settings.classifies
        if keeping and kept and folder.path.match(name):  # not a copy that lies beside its seed
            dataset = str(config.settings.dataset)
            keep(folder, keeping / dataset / name)
            datasets[keeping / dataset] = PreparedData(FinishedRun(folder.path).data)
            if name in options.models:
                keep_model(folder, keeping / dataset / name)
                unknown.remove(name)
    if keeping and not datasets:
        raise ConfigurationError(
            f"{options.runs} has no finished run ROW/seed-N that --keep keeps; give the folder of "
            f"all rows, with the names that they were launched with"
        )
    for rows, data in datasets.items():
        reckon(rows, data)
    if unknown:
        raise ConfigurationError(
            f"--models {', '.join(sorted(unknown))}: no finished run in {options.runs} that --keep "
            f"keeps; correct the name"
        )


if __name__ == "__main__":
    sys.exit(run_command(main))
