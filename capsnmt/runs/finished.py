"""Finished runs, as reports read them: everything is in the run's folder, nothing is computed."""

import math
import os
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Dict, Iterable, Iterator, List, Sequence, Set, Tuple

from msgspec import Meta

from capsnmt import records
from capsnmt.cli import ConfigurationError, say
from capsnmt.evaluation.scores import Evaluation, OutputScores, checksum
from capsnmt.files import sha256
from capsnmt.lines import read_lines
from capsnmt.records import RecordError
from capsnmt.runs.learning_curve import LearningCurve, read_learning_curve
from capsnmt.runs.records import ClassifierResult, Measures, RunFolder, TrainingRecord

TestSetName = Annotated[str, Meta(pattern=r"^(?!\.)[^/]+$")]  # of figures, too
SAME = 1e-6  # BLEU
SCORES: Any = Annotated[Dict[TestSetName, Evaluation], Meta(min_length=1)]


class FinishedRun:
    """A finished run, which translates or classifies sentences: ``OUTPUT/ROW/seed-S``.

    A record is read, and an error in it raised, when it is first needed.
    """

    def __init__(self, path: Path) -> None:
        self.folder = folder = RunFolder(path)
        if not path.is_dir():
            raise ConfigurationError(f"{path} is no folder; give OUTPUT/ROW/seed-S")
        missing = folder.config
        if folder.exists:
            self.config = folder.read_config()
            missing = folder.result if self.config.settings.classifies else folder.scores
        if not missing.is_file():
            raise ConfigurationError(
                f"{path} has no finished run, {missing.name} is missing; give OUTPUT/ROW/seed-S, "
                "or run the launcher's command again to resume the run"
            )

        self.row, self.seed = self.config.row, self.config.seed
        self.settings = self.config.settings
        self.model = folder.model(self.config)  # the checkpoint that was evaluated
        self.data = folder.data(self.config)  # the prepared data

    @cached_property
    def training(self) -> TrainingRecord:
        """What it was trained with."""
        return self.folder.read_training()

    @property
    def parameters(self) -> int:
        """The number of learned parameters."""
        if self.training.parameters is None:
            raise RecordError(
                f"{self.folder} has no number of parameters; run the launcher's command again"
            )
        return self.training.parameters

    @cached_property
    def curve(self) -> LearningCurve:
        """Its learning curve."""
        return read_learning_curve(self.folder.train_log, self.training.updates or math.inf)

    @cached_property
    def scores(self) -> Dict[str, Evaluation]:
        """The scores of a translation run: test set -> evaluation."""
        return records.read(self.folder.scores, SCORES)

    def output(self, test_set: str) -> OutputScores:
        """The scores of this run on a test set."""
        try:
            return self.scores[test_set].system(self.row).outputs[0]
        except LookupError:
            raise RecordError(
                f"{self.folder.scores} lacks the scores of {self.row} on {test_set}; delete it "
                "and run the launcher again"
            ) from None

    def check_dictionaries(self, binarised: Path) -> None:
        """Raise unless binarised data have the dictionaries of the training."""
        for language in self.settings.languages:
            dictionary = binarised / f"dict.{language}.txt"
            known = self.training.vocabulary.get(dictionary.name)
            if not dictionary.is_file() or sha256(dictionary) != known:
                raise ConfigurationError(
                    f"{dictionary} is not the dictionary that {self.folder} was trained with; give "
                    "the data of the training by --data"
                )

    def check_references(self, test_set: str, references: Sequence[Path]) -> None:
        """Raise unless these are the references of its scores, as far as those say."""
        known = self.scores[test_set].checksums if test_set in self.scores else {}
        text = (line.rstrip() for path in references for line in read_lines(path))
        if "reference" in known and known["reference"] != checksum(text):
            raise ConfigurationError(
                f"{self.folder} was scored with another reference than {references[0]}; restore "
                f"that, or run its launcher's command again to score it anew"
            )

    @cached_property
    def result(self) -> ClassifierResult:
        """The evaluation of a classification run."""
        result = records.read(self.folder.result, ClassifierResult)
        if "test" not in result.splits:
            raise RecordError(f"{self.folder.result} lacks the split 'test'; evaluate it again")
        return result

    @property
    def measures(self) -> Measures:
        """The measures of a classification run on the test split."""
        return self.result.splits["test"]


def find_runs(folders: Sequence[Path]) -> List[FinishedRun]:
    """Find the finished runs below some folders, in the order of a report; name the others.

    A folder is ``OUTPUT/ROW/seed-S``, ``OUTPUT/ROW``, ``OUTPUT``, or has several outputs. Each must
    have a finished run, and one that is itself a run must be finished. Of the rows below a folder,
    the baselines of other rows come first, then the others by name.
    """
    runs: List[FinishedRun] = []
    for folder in folders:
        below = list(_runs_below(folder))
        if RunFolder(folder).exists or not below:
            runs.append(FinishedRun(folder))
            continue
        finished = [FinishedRun(run.path) for run in below if run.is_finished]
        if not finished:
            raise ConfigurationError(
                f"{folder} has {len(below)} run(s), none of them finished; run the launcher's "
                "command again to resume them"
            )
        finished.sort(key=lambda run: (str(run.folder.row), run.seed, str(run.folder)))
        baselines = {run.config.baseline for run in finished}
        runs += sorted(finished, key=lambda run: run.row not in baselines)
        for run in below:
            if not run.is_finished:
                say(f"warning: {run} is not finished and is left out")
    seen: Set[Path] = set()
    for path in (found.folder.path for found in runs):
        if path.resolve() in seen:
            raise ConfigurationError(f"{path} is given twice; name each run once")
        seen.add(path.resolve())
    return runs


def _runs_below(folder: Path) -> Iterator[RunFolder]:
    """Yield each run below a folder once; rows may be links, as to another disk."""
    seen: Set[str] = set()
    for place, folders, _ in os.walk(folder, followlinks=True):
        run, real = RunFolder(Path(place)), os.path.realpath(place)
        folders[:] = [] if real in seen else sorted(folders)
        if real not in seen and run.path.name.startswith("seed-") and run.exists:
            yield run
        seen.add(real)


def distinct_names(runs: Sequence[FinishedRun]) -> List[str]:
    """The shortest names that differ: the rows, rows with seeds, or the folders."""
    candidates = (
        [run.row for run in runs],
        [f"{run.row}, seed {run.seed}" for run in runs],
        [str(run.folder) for run in runs],
    )
    return next((names for names in candidates if len(set(names)) == len(runs)), candidates[-1])


def signatures(runs: Iterable[FinishedRun], test_set: str, metric: str) -> List[str]:
    """Return the signatures of a score of some runs: one, unless they were scored otherwise."""
    return sorted({run.output(test_set).scores[metric].signature for run in runs})


def differing_texts(
    one: FinishedRun, other: FinishedRun, *texts: str
) -> Iterator[Tuple[str, str, str]]:
    """Return name and contents of the texts of test sets that are not the same for two runs.

    Of scores that an older version made, nothing is known.
    """
    for test_set in one.scores.keys() & other.scores.keys():
        known = [run.scores[test_set].checksums for run in (one, other)]
        for text in texts:
            was, now = (checksums.get(text, "")[:12] for checksums in known)
            if was and now and was != now:
                yield f"the {text} of {test_set}", was, now


def check_comparable(runs: Sequence[FinishedRun]) -> None:
    """Raise unless all runs translated the same test sets, by name and by reference.

    Of those that were tested against one another, the scores must be those of the test.
    """
    first, folders = runs[0], {run.folder.path.resolve(): run for run in runs}
    for run in runs:
        for what, one, other in (
            ("languages", first.settings.languages, run.settings.languages),
            ("test sets", sorted(first.scores), sorted(run.scores)),
        ):
            if one != other:
                raise ConfigurationError(
                    f"{run.folder} has the {what} {', '.join(other)}, but {first.folder} has "
                    f"{', '.join(one)}; report them separately"
                )
        for text, was, now in differing_texts(first, run, "reference"):
            raise ConfigurationError(
                f"{run.folder} has {text} {now}, but {first.row}, seed {first.seed}, has {was}; "
                "report them separately"
            )
        for test_set, evaluation in run.scores.items():
            tested = evaluation.systems[0]
            path = run.folder.row.parent / tested.name / run.folder.path.name
            baseline = folders.get(path.resolve()) if evaluation.test else None
            if baseline is None:
                continue
            scored = tested.outputs[0], baseline.output(test_set)
            before, after = (each.scores["bleu"].score for each in scored)
            if abs(before - after) > SAME:
                raise ConfigurationError(
                    f"{run.folder} was tested against BLEU {before:.2f} of {tested.name} on "
                    f"{test_set}, which is {after:.2f}; score both alike: delete "
                    f"{run.folder.scored(test_set).name} of both, and run its launcher's command "
                    f"again"
                )
