"""The steps of a translation system: prepare, average, generate and score each test set."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.configurations import Scoring, Settings
from capsnmt.corpora.__main__ import build_parser, preparation
from capsnmt.corpora.prepared import SUBWORDS
from capsnmt.evaluation.__main__ import parse_arguments
from capsnmt.evaluation.text import text_format
from capsnmt.launch import flags, training_step
from capsnmt.launch.run import Run, python
from capsnmt.lines import read_lines
from capsnmt.steps import Step

SIGNIFICANCE = ("significance", "samples")  # they need a baseline
HEADER = 26  # bytes of fairseq's index before its sizes
POSITIONS = 1024  # fairseq's default of --max-source-positions and --max-target-positions


def prepare(run: Run) -> Optional[Step]:
    """Download, segment and binarise; ``None`` if the settings have no recipe."""
    data = run.settings.data
    if data.recipe is None:
        return None
    pair = "-".join(run.settings.languages)
    arguments = [data.recipe, "--pair", pair, "--output", str(run.data.folder)]
    if run.sources is not None:
        arguments += ["--local", str(run.sources)]
    if data.corpora is not None:
        arguments += ["--corpora", data.corpora]
    for mirror in run.config.mirrors:
        arguments += ["--mirror", mirror]

    def known() -> bool:
        """Return whether the data are complete; raise if they are of another recipe or other text.

        **D**: a run that is resumed, as by a job in a queue, is what its ``config.json`` says: a
        recipe that was edited since changes nothing.
        """
        made = run.data.is_complete()
        if made and not run.resumed:
            preparation(build_parser().parse_args(arguments), arguments).check_unchanged()
        return made

    outputs, program = (run.data.manifest,), python("capsnmt.corpora")
    return Step("prepare", outputs, program=program, arguments=tuple(arguments), known=known)


def evaluation(run: Run) -> List[Step]:
    """Average; generate and score each test set."""
    steps = []
    for way, count in run.settings.average.items():
        inputs, program = (run.folder.last_checkpoint,), python("capsnmt.checkpoints.average")
        output = ("--output", str(run.model), f"--{way}", str(count))
        words = (str(run.folder.checkpoints), *output)
        steps.append(Step("average", (run.model,), inputs, program, words))
    for test_set in run.settings.data.test_sets:
        steps += [generate(run, test_set), score(run, test_set)]
    return steps


def generate(run: Run, test_set: str) -> Step:
    """fairseq-generate on one test set; the output has subwords, which the evaluation joins."""
    arguments = (
        *training_step.common(run),
        *("--path", str(run.model), "--gen-subset", str(run.settings.data.test_sets[test_set])),
        *flags.argv(run.settings.generate),
        *("--seed", str(run.config.seed), "--log-format", "none"),
    )
    files = run.data.binarised.glob(f"{run.settings.data.test_sets[test_set]}.*-*.*")
    dictionaries = (run.data.dictionary(language) for language in run.settings.languages)
    named = flags.named_files(run.settings.generate).values()
    inputs = (run.model, *sorted(files), *dictionaries, *named)
    output = run.folder.generated(test_set)
    program = python("fairseq_cli.generate")
    return Step(f"generate {test_set}", (output,), inputs, program, arguments, to_file=True)


def score(run: Run, test_set: str) -> Step:
    """The metrics of one test set, with the significance against the baseline's output."""
    baseline, output = run.config.baseline, run.folder.generated(test_set)
    references = _references(run, test_set)
    inputs = [output, *(path for _, path in references)]
    against: List[str] = []
    settings = records.plain(run.settings.score or {})
    if baseline:
        inputs.append(run.of(baseline).generated(test_set))
        against = ["--baseline", f"{baseline}={inputs[-1]}"]
    else:
        settings = {key: value for key, value in settings.items() if key not in SIGNIFICANCE}
    settings.pop("tokenized", None)
    arguments = (
        f"{run.config.row}={output}",
        *against,
        *(word for flag, path in references for word in (flag, str(path))),
        *flags.argv(settings),
        *("--target-lang", run.settings.languages[1]),
        *("--json", str(run.folder.scored(test_set))),
    )
    outputs, program = (run.folder.scored(test_set),), python("capsnmt.evaluation")
    return Step(f"score {test_set}", outputs, tuple(inputs), program, arguments)


def check_settings(run: Run) -> None:
    """Raise unless the commands after the training will understand their arguments."""
    # D: absolute, as a job and --resume have them
    for path in (run.model.absolute(), run.data.binarised.absolute()):
        if os.pathsep in str(path):
            raise ConfigurationError(
                f"{path} has a {os.pathsep}, at which fairseq splits paths; give another --output, "
                f"--name or --prepared"
            )
    test_set = next(iter(run.settings.data.test_sets))
    flags.check_generation(run.settings, generate(run, test_set).arguments)
    parse_arguments(score(run, test_set).arguments)


def check_data(run: Run) -> Tuple[List[Path], List[Path]]:
    """Check that the data has the test sets; return its dictionaries, and what is binarised."""
    run.data.check("--prepared ")
    again = "restore it, or prepare the data again"
    # Data that an older version prepared can be trained on; no more of its manifest is needed.
    known = records.read(run.data.manifest, dict)
    subsets, made = known.get("subsets", {}), known.get("segmentation", {}).get("method")
    joined = text_format("generate", (run.settings.score or Scoring()).remove_bpe).remove_bpe
    joins = {"remove-bpe", "post-process"} & {*run.settings.generate}
    if not joins and joined != SUBWORDS.get(made, joined):
        raise ConfigurationError(
            f"score.remove-bpe is {joined}, but {run.data.folder} has subwords of "
            f"{SUBWORDS[made]}; set that"
        )
    names = {subset: name for name, subset in subsets.items()}
    for test_set, subset in run.settings.data.test_sets.items():
        if subsets.get(test_set, subset) != subset:
            raise ConfigurationError(
                f"data.test-sets.{test_set} is {subset}, but {subsets[test_set]} in "
                f"{run.data.manifest}; set that"
            )
        if (of := names.get(str(subset), test_set)) != test_set:  # its references may be there yet
            raise ConfigurationError(
                f"data.test-sets.{test_set} is {subset}, which {run.data.manifest} says is {of}; "
                f"set data.test-sets.{of} in its place"
            )
        for _, reference in _references(run, test_set):
            if not reference.is_file():
                fix = f"choose from {', '.join(subsets) or 'no test sets'}"
                if test_set in subsets:
                    fix = f"restore it, or delete {run.data.manifest} and prepare the data again"
                raise ConfigurationError(
                    f"data.test-sets.{test_set} is not in the data (no {reference}); {fix}"
                )
            lines = sum(1 for _ in read_lines(reference))
            if lines != (sentences := len(_sizes(run, str(subset), run.settings.languages[0]))):
                raise ConfigurationError(
                    f"{reference} has {lines:,} lines, but {test_set} is of {sentences:,} "
                    f"sentences; {again}"
                )
        _check_lengths(run, f"data.test-sets.{test_set}", str(subset), validates=False)
    train = run.settings.train
    splits = [str(train.get("train-subset", "train"))]
    if not train.get("disable-validation"):
        valid = str(train.get("valid-subset", "valid")).split(",")
        for subset in valid:
            _check_lengths(run, subset, subset, validates=True)
        splits += valid
    for language in run.settings.languages:
        _sizes(run, splits[0], language)
    found = {path for split in splits for path in run.data.binarised.glob(f"{split}*.*-*.*")}
    dictionaries = [run.data.dictionary(language) for language in run.settings.languages]
    for path in dictionaries:
        if not path.is_file():
            raise ConfigurationError(f"{path}: there is no such dictionary; {again}")
    return dictionaries, sorted(found)


def _references(run: Run, test_set: str) -> List[Tuple[str, Path]]:
    """Return the references of a test set, each with its flag of ``capsnmt-evaluate``."""
    stages = {"--tokenized-reference": "tokenised", "--reference": "raw"}
    if not (run.settings.score and run.settings.score.tokenized):
        del stages["--tokenized-reference"]
    target = run.settings.languages[1]
    return [
        (flag, path)
        for flag, stage in stages.items()
        for path in run.data.references(test_set, target, stage)
    ]


def _limits(settings: Settings, flag: str, validates: bool) -> Dict[str, int]:
    """Return the most subwords of a sentence, by the key that says so."""
    train, generate, changed = settings.train, settings.generate, settings.model_overrides
    found: Dict[str, Any] = {f"train.{flag}": train.get(flag) or POSITIONS}
    if validates:
        tokens = train.get("max-tokens-valid")
        key = "train.max-tokens-valid" if tokens else "batch.max-tokens"
        found[key] = tokens or settings.batch.max_tokens or 1
    else:
        if flag.replace("-", "_") in changed:
            found = {"generate.model-overrides": changed[flag.replace("-", "_")]}
        found[f"generate.{flag}"] = generate.get(flag) or POSITIONS
        if generate.get("max-tokens"):
            found["generate.max-tokens"] = generate["max-tokens"]
    return {key: int(limit) for key, limit in found.items()}


def _check_lengths(run: Run, split: str, subset: str, validates: bool) -> None:
    """Raise if a sentence is too long for validation or generation: fairseq would end with it."""
    drops = validates and run.settings.train.get("skip-invalid-size-inputs-valid-test")
    for side, language in zip(("source", "target"), run.settings.languages):
        flag = f"max-{side}-positions"
        limits = _limits(run.settings, flag, validates)
        most = limits[f"train.{flag}"] if drops else math.inf
        sizes = _sizes(run, subset, language).tolist()
        longest = max((size for size in sizes if size <= most), default=0)
        for key in (key for key, limit in limits.items() if longest > limit):
            raise ConfigurationError(
                f"{split}: line {sizes.index(longest) + 1} has {longest} subwords in {language} "
                f"with its end, more than the {limits[key]} of {key}; set that to {longest}, or "
                f"shorten it"
            )


def _sizes(run: Run, subset: str, language: str) -> np.ndarray:
    """Return how many subwords each binarised sentence has; raise if a file is not whole."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset, infer_dataset_impl

    for path in run.data.binarised.glob(f"{subset}.*.{language}.idx"):
        with suppress(OSError, ValueError):  # of sizes that are cut
            known = infer_dataset_impl(str(path.with_suffix(""))) == "mmap"
            if known and path.stat().st_size >= HEADER:
                index = MMapIndexedDataset.Index(str(path))
                held = path.with_suffix(".bin").stat().st_size
                if held == index.sizes.sum() * index.dtype().itemsize:
                    return np.array(index.sizes)
    raise ConfigurationError(
        f"{run.data.binarised}: {subset}.*.{language}.bin and .idx are not there, or are cut; "
        f"restore them, or prepare the data again"
    )
