"""Translation: prepare, train, average, then generate and score each test set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from capsnmt import records
from capsnmt.checkpoints.load import count_parameters
from capsnmt.cli import ConfigurationError, require
from capsnmt.evaluation.text_files import read_lines
from capsnmt.launch import flags
from capsnmt.launch.devices import Batch, split_batch
from capsnmt.launch.recipes import describe_corpus
from capsnmt.launch.run import USER_DIR, Run
from capsnmt.launch.schema import SIGNIFICANCE
from capsnmt.launch.stage import Stage, python
from capsnmt.lines import blank_lines
from capsnmt.runs.folder import RunFolder

GENERATE, EVALUATION = "fairseq_cli.generate", "capsnmt.evaluation"


class TranslationRun(Run):
    """A translation system."""

    @property
    def languages(self) -> List[str]:
        """Source and target language."""
        return [self.experiment["data.source-lang"], self.experiment["data.target-lang"]]

    @property
    def pair(self) -> str:
        """The languages as ``SOURCE-TARGET``."""
        return "-".join(self.languages)

    @property
    def test_sets(self) -> Dict[str, str]:
        """Name of each test set -> its fairseq subset."""
        return self.experiment["data.test-sets"]

    @property
    def model(self) -> Path:
        """The average of several checkpoints if the configuration has one, else the last."""
        folder = self.folder
        return folder.averaged if self.experiment["average"] else folder.last_checkpoint

    @property
    def batch(self) -> Batch:
        """The tokens of an update, split over the run's devices."""
        batch = self.experiment["batch"]
        return split_batch(batch["tokens-per-update"], batch["max-tokens"], self.device.workers)

    @property
    def warning(self) -> Optional[str]:
        """A warning if the share of a device is smaller than the longest sentence may be.

        fairseq drops sentences that do not fit into ``--max-tokens`` without a message.
        """
        limit, train = self.experiment["batch.max-tokens"], self.experiment["train"]
        longest = min(
            limit, *(train.get(f"max-{side}-positions", 1024) for side in ("source", "target"))
        )
        if self.batch.per_pass >= longest:
            return None
        return (
            f"sentences of more than {self.batch.per_pass:,} tokens are left out of training: "
            f"{longest:,} are allowed, but the update is shared by {self.device.workers} devices"
        )

    @property
    def results(self) -> Sequence[Path]:
        """The scores of the run, and the means over its seeds."""
        return [self.folder.scores, self.folder.summary]

    def reference(self, test_set: str) -> Path:
        """The reference of a test set: raw text in the target language."""
        return self.data.raw(test_set, self.languages[1])

    def prepare(self) -> Optional[Stage]:
        """Download, segment and binarise; ``None`` if the configuration has no recipe."""
        recipe = self.experiment["data.recipe"]
        if recipe is None:
            return None
        arguments = [recipe, "--pair", self.pair, "--output", str(self.data.folder)]
        if self.data.local is not None:
            arguments += ["--data", str(self.data.local)]
        if self.experiment["data.corpora"] is not None:
            arguments += ["--corpora", self.experiment["data.corpora"]]
        for mirror in self.data.mirrors:
            arguments += ["--mirror", mirror]
        if self.data.offline:
            arguments.append("--offline")
        program, outputs = python("capsnmt.corpora"), (self.data.manifest,)
        return Stage("prepare", program, tuple(arguments), outputs=outputs)

    def data_steps(self) -> List[str]:
        """What the recipe of the data does."""
        return describe_corpus(self.experiment, self.pair, self.data.binarised)

    def common_arguments(self) -> List[str]:
        """What training and generation both need."""
        source, target = self.languages
        languages = ["--source-lang", source, "--target-lang", target]
        # The fork's default multiple of 8 drops the last batch of a data set of any other size:
        # sentences would be missing in validation and in the output.
        every_batch = ["--required-batch-size-multiple", "1"]
        data = str(self.data.binarised)
        return [data, "--user-dir", str(USER_DIR), *languages, *self.cpu(), *every_batch]

    def evaluation(self) -> List[Stage]:
        """Average; generate and score each test set."""
        average = self.average()
        stages = [] if average is None else [average]
        for test_set in self.test_sets:
            stages += [self.generate(test_set), self.score(test_set)]
        return stages

    def average(self) -> Optional[Stage]:
        """The mean of the last or best checkpoints; ``None`` if one checkpoint is evaluated."""
        if not self.experiment["average"]:
            return None
        ((how, number),) = self.experiment["average"].items()
        folder, model = self.folder, self.model
        arguments = (str(folder.checkpoints), "--output", str(model), f"--{how}", str(number))
        program = python("capsnmt.checkpoints.average")
        return Stage("average", program, arguments, (folder.last_checkpoint,), (model,))

    def generate(self, test_set: str) -> Stage:
        """fairseq-generate on one test set; the output has subwords, which the evaluation joins."""
        output = self.folder.generated(test_set)
        arguments = (
            *self.common_arguments(),
            *("--path", str(self.model), "--gen-subset", self.test_sets[test_set]),
            *flags.argv(self.experiment["generate"] or {}),
            *("--seed", str(self.seed), "--log-format", "none"),
        )
        inputs = (self.model, self.data.manifest)
        name, lines = f"generate {test_set}", self.reference(test_set)
        return Stage(name, python(GENERATE), arguments, inputs, (output,), output, lines)

    def score(self, test_set: str) -> Stage:
        """The metrics of one test set, with the significance against the baseline's output."""
        row, baseline = self.experiment.row, self.baseline
        output, reference = self.folder.generated(test_set), self.reference(test_set)
        inputs = [output, reference]
        against: List[str] = []
        settings = dict(self.experiment["score"] or {})
        if baseline:
            inputs.append(self.of(baseline).generated(test_set))
            against = ["--baseline", f"{baseline}={inputs[-1]}"]
        else:
            settings = {key: value for key, value in settings.items() if key not in SIGNIFICANCE}
        if settings.pop("tokenized", False):
            against += ["--tokenized-reference", str(reference)]
        if settings.get("comet-model"):
            inputs.append(self.data.raw(test_set, self.languages[0]))
            against += ["--comet-source", str(inputs[-1])]
        arguments = (
            f"{row}={output}",
            *against,
            *("--reference", str(reference)),
            *flags.argv(settings),
            *("--target-lang", self.languages[1]),
            *("--json", str(self.folder.scored(test_set))),
        )
        outputs = (self.folder.scored(test_set),)
        return Stage(f"score {test_set}", python(EVALUATION), arguments, tuple(inputs), outputs)

    def finish(self) -> None:
        """Collect the scores of all test sets; record the number of parameters."""
        self.folder.write_scores(self.test_sets)
        description = self.folder.read_description()
        if description.parameters is None:
            counted = replace(description, parameters=count_parameters(self.model))
            self.folder.write_description(counted)

    def check_settings(self) -> None:
        """Raise unless fairseq will understand every flag.

        Raises:
            ConfigurationError: naming the flag and its origin.
        """
        if self.task is not None:
            raise ConfigurationError(
                f"--tasks {self.task}: {self.experiment.row} is not a probing experiment: drop it"
            )
        flags.check_owned(self.experiment)
        flags.check_literals(self.experiment)
        flags.check_arch(self.experiment)
        flags.check_average(self.experiment)
        test_set = next(iter(self.test_sets))
        flags.check_train(self.experiment, self.train().arguments)
        flags.check_generate(self.experiment, self.generate(test_set).arguments)
        flags.check_score(self.score(test_set).arguments)

    def check_local(self) -> None:
        """Raise unless the folder of the raw data exists.

        Raises:
            ConfigurationError: it does not, or is a file.
        """
        super().check_local()
        if self.data.local is not None and not self.data.local.is_dir():
            raise ConfigurationError(f"--data {self.data.local}: is a file: give a folder")

    def check_folders(self, together: Sequence[RunFolder], waits: bool) -> None:
        """Raise unless the data and the baseline's output exist, or will, and so do libraries.

        Raises:
            ConfigurationError: naming the folder, the file or the extra.
        """
        if not self.experiment["data.recipe"] and not self.data.manifest.is_file():
            raise ConfigurationError(
                f"--prepared {self.data.folder}: holds no prepared data (manifest.json): this "
                f"dataset has no recipe, so prepare it first"
            )
        # these stages come first and last: a library may not be missing after hours
        require(*([] if self.data.manifest.is_file() else ["data"]), "evaluation")
        if self.baseline is None:
            return
        other = self.of(self.baseline)
        missing = [name for name in self.test_sets if not other.generated(name).is_file()]
        if missing and not waits and other not in together:
            raise ConfigurationError(
                f"--baseline {self.baseline}: there is no {other.generated(missing[0])}: run that "
                f"row first, with --seed {self.seed} and --output {self.output}"
            )

    def check_data(self) -> List[Path]:
        """Check that the data has the test sets and dictionaries, and return the dictionaries.

        Raises:
            ConfigurationError: naming the test set or the file, which may be missing or blank.
        """
        manifest = self.data.manifest
        subsets = records.read(manifest, dict).get("subsets", {})
        for test_set, subset in self.test_sets.items():
            if subsets.get(test_set, subset) != subset:
                raise ConfigurationError(
                    f"data.test-sets.{test_set}: {subset}: {manifest} calls it "
                    f"{subsets[test_set]}: set that"
                )
            if not self.reference(test_set).is_file():
                raise ConfigurationError(
                    f"data.test-sets.{test_set}: there is no {self.reference(test_set)}: the data "
                    f"has {', '.join(subsets) or 'no test sets'}"
                )
            reference = str(self.reference(test_set))
            blank_lines(read_lines(reference), reference)
        dictionaries = [self.data.dictionary(language) for language in self.languages]
        for dictionary in dictionaries:
            if not dictionary.is_file():
                raise ConfigurationError(f"{dictionary}: is missing: give another --prepared")
        return dictionaries
