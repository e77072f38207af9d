"""Keep what finished runs leave behind, as small text: log, curve, translations, scores.

``results/DATASET/ROW/seed-N`` has all that is needed to score a run again; no checkpoint is kept.

    python -m scripts.results RUNS                    # list the runs below RUNS
    python -m scripts.results RUNS --keep results     # and keep the finished ones
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.outputs import read_output
from capsnmt.evaluation.scores import MULTI_BLEU
from capsnmt.evaluation.text import text_format
from capsnmt.files import atomic_writer
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.learning_curve import LearningCurve, read_learning_curve
from capsnmt.runs.records import RunConfig, Score


def find_runs(folder: Path) -> Iterator[RunFolder]:
    """Yield the started runs below a folder, in the order of their names."""
    for config in sorted(folder.glob("*/seed-*/config.json")):
        yield RunFolder(config.parent)


def reason_of_end(config: RunConfig, curve: LearningCurve) -> str:
    """Return why a finished training ended."""
    most, patience = config.settings.updates, config.settings.train.get("patience")
    if most is not None and curve.updates >= most:
        return f"max-update {most}"
    return f"patience {patience}" if patience else "max-epoch"


def facts(run: FinishedRun) -> Dict[str, Any]:
    """Return what a reader asks about a finished training."""
    curve = run.curve
    best = min(curve.valid, key=curve.valid.__getitem__)
    return {
        "updates": curve.updates,
        "ended-by": reason_of_end(run.config, curve),
        "seconds": curve.training_seconds,
        "words-per-second": curve.tokens_per_second,
        "peak-memory-gib": curve.peak_memory,
        "best-valid-loss": {"loss": curve.valid[best], "update": best},
    }


def translations(output: Path, config: RunConfig) -> List[str]:
    """Return the translations of a test set in its order, as words."""
    text = text_format(remove_bpe=(config.settings.score or Score()).remove_bpe, detokenize="none")
    return read_output(str(output), config.row, text).tokens


def write_table(path: Path, points: Dict[int, float]) -> None:
    """Write a curve as two columns."""
    with atomic_writer(path) as file:
        file.write("update\tloss\n")
        file.writelines(f"{update}\t{loss}\n" for update, loss in sorted(points.items()))


def keep(place: RunFolder, folder: Path) -> None:
    """Write the results of a finished run to a folder.

    Args:
        place: the folder of the run.
        folder: where to.

    Raises:
        ConfigurationError: a record of the run is missing or damaged.
    """
    run = FinishedRun(place.path)
    folder.mkdir(parents=True, exist_ok=True)
    # the folders of one machine tell nobody anything
    command = [Path(word).name if word.startswith("/") else word for word in run.config.command]
    config = {**records.plain(run.config), "command": command}
    del config["data"], config["sources"]
    trained = records.plain(run.training)
    records.write(folder / "run.json", {**config, **trained, **facts(run)})
    write_table(folder / "train-loss.tsv", run.curve.train)
    write_table(folder / "valid-loss.tsv", run.curve.valid)
    for test_set in run.settings.data.test_sets:
        with atomic_writer(folder / f"{test_set}.{run.settings.languages[1]}") as file:
            lines = translations(run.folder.generated(test_set), run.config)
            file.writelines(f"{line}\n" for line in lines)
    for path in (run.folder.train_log, run.folder.scores):
        shutil.copyfile(path, folder / path.name)


def state(folder: RunFolder) -> str:
    """Return how far a run is, in words."""
    if folder.is_finished:
        scores = FinishedRun(folder.path).scores.items()
        bleu = [f"{name} {each.systems[0].spread(MULTI_BLEU).mean:.2f}" for name, each in scores]
        return f"finished, tokenised BLEU: {', '.join(bleu)}"
    try:
        return f"at update {read_learning_curve(folder.train_log).updates:,}"
    except ConfigurationError:  # before the first entry of its log
        return "begun"


def main() -> int:
    """List the runs below a folder, and keep the results of those that are finished."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("runs", type=Path, help="the folder of all rows")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where results are kept")
    options = parser.parse_args()
    try:
        for folder in find_runs(options.runs):
            config = folder.read_config()
            print(f"{config.row}, seed {config.seed}: {state(folder)}")
            if options.keep is not None and folder.is_finished:
                dataset = str(config.settings.dataset)
                place = options.keep / dataset / config.row / f"seed-{config.seed}"
                keep(folder, place)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
