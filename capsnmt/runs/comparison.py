"""How finished rows differ, over their seeds, sentences and test sets."""

from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence

from capsnmt.cli import say
from capsnmt.configurations import Scoring
from capsnmt.evaluation.evaluate import evaluate_sets
from capsnmt.evaluation.outputs import Output, Settings, Systems, read_output
from capsnmt.evaluation.scores import RANDOMIZATION, SAMPLES, SEED, Evaluations, Test
from capsnmt.evaluation.text import TextFormat, text_format
from capsnmt.runs.finished import SAME, FinishedRun
from capsnmt.runs.trained_rows import TrainedRow

METRICS = ("bleu", "chrf")


def compare_rows(
    rows: Sequence[TrainedRow], references: Mapping[str, Sequence[Path]]
) -> Optional[Evaluations]:
    """Compare the first row with the others, by their translations, in BLEU and chrF.

    ``references`` are those of each test set.

    The tests are those of ``capsnmt-evaluate``. ``None``, with a warning, where a translation or
    reference is not there, or is not what was scored.
    """
    settings: Dict[str, Settings] = {}
    systems: Dict[str, Systems] = {}
    language = rows[0].runs[0].settings.languages[1]
    for test_set, texts in references.items():
        outputs = [run.folder.generated(test_set) for row in rows for run in row.runs]
        missing = [path for path in (*texts, *outputs) if not path.is_file()]
        if missing:
            say(f"warning: {missing[0]} is not there: no difference is tested; restore it")
            return None
        systems[test_set] = {
            row.name: [read_translations(run, test_set) for run in row.runs] for row in rows
        }
        folders = {row.name: [run.folder.path for run in row.runs] for row in rows}
        text = text_format("plain", target_lang=language)
        settings[test_set] = settings_of(folders, texts, text)
    found = evaluate_sets(settings, systems)
    for test_set, evaluation in found.test_sets.items():
        for row, system in zip(rows, evaluation.systems):
            for run, output in zip(row.runs, system.outputs):
                known, now = (x.scores["bleu"].score for x in (run.output(test_set), output))
                if abs(known - now) > SAME:
                    say(
                        f"warning: {run.folder.scores}: BLEU on {test_set} is {known:.2f}, of its "
                        f"translations {now:.2f}: no difference is tested; delete "
                        f"{run.folder.scored(test_set).name} and run its launcher's command again"
                    )
                    return None
    return found


def settings_of(
    systems: Mapping[str, Sequence[Path]],
    references: Sequence[Path],
    text: TextFormat,
    metrics: Sequence[str] = METRICS,
) -> Settings:
    """Return the settings that test the files of each system against those of the first."""
    method = RANDOMIZATION
    return Settings(
        systems={name: [*map(str, paths)] for name, paths in systems.items()},
        text=text,
        references=[*map(str, references)],
        metrics=metrics,
        tested=True,
        test=Test(baseline=next(iter(systems)), method=method, samples=SAMPLES[method], seed=SEED),
    )


def read_translations(run: FinishedRun, test_set: str) -> Output:
    """Read the translations of a run, as the text that was scored."""
    score = run.settings.score or Scoring()
    language = run.settings.languages[1]
    text = text_format("generate", score.remove_bpe, score.detokenize, language)
    return read_output(str(run.folder.generated(test_set)), str(run.folder), text)
