"""The steps of a translation system: prepare, train, average, generate and score each test set."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional

from capsnmt import records
from capsnmt.cli import ConfigurationError, require
from capsnmt.launch import flags
from capsnmt.launch.devices import Batch, split_batch
from capsnmt.launch.run import USER_DIR, Run, python, train_step
from capsnmt.lines import blank_lines, read_lines
from capsnmt.steps import Step

SIGNIFICANCE = ("significance", "resamples", "trials")  # they need a baseline


def batch(run: Run) -> Batch:
    """The tokens of an update, split over the run's devices."""
    wanted = run.settings.batch
    return split_batch(wanted.tokens_per_update or 0, wanted.max_tokens or 1, run.device.workers)


def warning(run: Run) -> Optional[str]:
    """A warning if the share of a device is smaller than the longest sentence may be.

    fairseq drops sentences that do not fit into ``--max-tokens`` without a message.
    """
    train, share = run.settings.train, batch(run).per_pass
    sides = [train.get(f"max-{side}-positions") or 1024 for side in ("source", "target")]
    longest = min([run.settings.batch.max_tokens or 0, *(int(positions) for positions in sides)])
    if share >= longest:
        return None
    return (
        f"sentences of more than {share:,} tokens are left out of training: {longest:,} are "
        f"allowed, but the update is shared by {run.device.workers} devices"
    )


def results(run: Run) -> List[Path]:
    """The scores of the run, and the means over its seeds."""
    return [run.folder.scores, run.folder.summary]


def prepare(run: Run) -> Optional[Step]:
    """Download, segment and binarise; ``None`` if the settings have no recipe."""
    data = run.settings.data
    if data.recipe is None:
        return None
    pair = "-".join(_languages(run))
    arguments = [data.recipe, "--pair", pair, "--output", str(run.data.folder)]
    if run.sources is not None:
        arguments += ["--data", str(run.sources)]
    if data.corpora is not None:
        arguments += ["--corpora", data.corpora]
    for mirror in run.config.mirrors:
        arguments += ["--mirror", mirror]
    program = python("capsnmt.corpora")
    return Step("prepare", (run.data.manifest,), program=program, arguments=tuple(arguments))


def train(run: Run) -> Step:
    """The training."""
    return train_step(run, _common(run), batch(run))


def evaluation(run: Run) -> List[Step]:
    """Average; generate and score each test set."""
    folder, settings = run.folder, run.settings
    steps = []
    if settings.average is not None and settings.average.chosen is not None:
        how, count = settings.average.chosen
        words = (str(folder.checkpoints), "--output", str(run.model), f"--{how}", str(count))
        program = python("capsnmt.checkpoints.average")
        steps.append(Step("average", (run.model,), (folder.last_checkpoint,), program, words))
    for test_set in settings.data.test_sets:
        steps += [generate(run, test_set), score(run, test_set)]
    return steps


def generate(run: Run, test_set: str) -> Step:
    """fairseq-generate on one test set; the output has subwords, which the evaluation joins."""
    arguments = (
        *_common(run),
        *("--path", str(run.model), "--gen-subset", str(run.settings.data.test_sets[test_set])),
        *flags.argv(run.settings.generate),
        *("--seed", str(run.config.seed), "--log-format", "none"),
    )
    inputs, output = (run.model, run.data.manifest), run.folder.generated(test_set)
    program = python("fairseq_cli.generate")
    return Step(f"generate {test_set}", (output,), inputs, program, arguments, to_file=True)


def score(run: Run, test_set: str) -> Step:
    """The metrics of one test set, with the significance against the baseline's output."""
    baseline, target = run.config.baseline, _languages(run)[1]
    output, reference = run.folder.generated(test_set), run.data.raw(test_set, target)
    inputs = [output, reference]
    against: List[str] = []
    settings = records.plain(run.settings.score or {})
    if baseline:
        inputs.append(run.of(baseline).generated(test_set))
        against = ["--baseline", f"{baseline}={inputs[-1]}"]
    else:
        settings = {key: value for key, value in settings.items() if key not in SIGNIFICANCE}
    if settings.pop("tokenized", False):
        against += ["--tokenized-reference", str(reference)]
    arguments = (
        f"{run.config.row}={output}",
        *against,
        *("--reference", str(reference)),
        *flags.argv(settings),
        *("--target-lang", target),
        *("--json", str(run.folder.scored(test_set))),
    )
    outputs, program = (run.folder.scored(test_set),), python("capsnmt.evaluation")
    return Step(f"score {test_set}", outputs, tuple(inputs), program, arguments)


def check_settings(run: Run) -> None:
    """Raise unless each command will understand its arguments.

    Raises:
        ConfigurationError: naming the flag.
    """
    row = run.config.row
    if run.config.task is not None:
        raise ConfigurationError(
            f"--tasks {run.config.task}: {row} is not a probing experiment: drop it"
        )
    if run.sources is not None and run.sources.is_file():
        raise ConfigurationError(f"--data {run.sources}: is a file: give a folder")
    flags.check_settings(run.settings, row)
    test_set = next(iter(run.settings.data.test_sets))
    flags.check_train(row, train(run).arguments)
    flags.check_generate(row, generate(run, test_set).arguments)
    flags.check_score(row, score(run, test_set).arguments)


def check_ready(run: Run) -> None:
    """Raise unless the data exist, or will, and so do the libraries of all steps.

    Raises:
        ConfigurationError: naming the folder or the extra.
    """
    prepared = run.data.manifest.is_file()
    if run.settings.data.recipe is None and not prepared:
        raise ConfigurationError(
            f"--prepared {run.data.folder}: holds no prepared data (manifest.json): prepare it by "
            f"capsnmt-prepare first"
        )
    # these steps come first and last: a library may not be missing after hours
    require(*([] if prepared else ["data"]), "evaluation")


def check_data(run: Run) -> List[Path]:
    """Check that the data has the test sets and dictionaries, and return the dictionaries.

    Raises:
        ConfigurationError: naming the test set or the file, which may be missing or blank.
    """
    manifest, languages = run.data.manifest, _languages(run)
    # Data that an older version prepared can be trained on; no more of its manifest is needed.
    subsets = records.read(manifest, dict).get("subsets", {})
    for test_set, subset in run.settings.data.test_sets.items():
        if subsets.get(test_set, subset) != subset:
            raise ConfigurationError(
                f"data.test-sets.{test_set}: {subset}: {manifest} calls it {subsets[test_set]}: "
                f"set that"
            )
        reference = run.data.raw(test_set, languages[1])
        if not reference.is_file():
            raise ConfigurationError(
                f"data.test-sets.{test_set}: there is no {reference}: the data has "
                f"{', '.join(subsets) or 'no test sets'}"
            )
        lines = list(read_lines(reference))
        if not lines:
            raise ConfigurationError(f"data.test-sets.{test_set}: {reference} is empty")
        blank_lines(lines, str(reference))
    dictionaries = [run.data.dictionary(language) for language in languages]
    for dictionary in dictionaries:
        if not dictionary.is_file():
            raise ConfigurationError(f"{dictionary}: is missing: give another --prepared")
    return dictionaries


def _languages(run: Run) -> List[str]:
    return [str(run.settings.data.source_lang), str(run.settings.data.target_lang)]


def _common(run: Run) -> List[str]:
    """The arguments of data and task that training and generation both need."""
    source, target = _languages(run)
    languages = ["--source-lang", source, "--target-lang", target]
    # The fork's default multiple of 8 drops the last batch of a data set of any other size:
    # sentences would be missing in validation and in the output.
    every_batch = ["--required-batch-size-multiple", "1"]
    data = str(run.data.binarised)
    return [data, "--user-dir", str(USER_DIR), *languages, *run.cpu(), *every_batch]
