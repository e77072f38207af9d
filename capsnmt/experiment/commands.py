"""The exact commands of one run, and the layout of its folder. Nothing here runs anything."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import capsnmt
from capsnmt.experiment import flags
from capsnmt.experiment.config import Experiment
from capsnmt.experiment.devices import Batch, Device, split_batch, train_prefix
from capsnmt.files import temporary_path
from capsnmt.runs.folder import RunFolder

USER_DIR = Path(capsnmt.__file__).parent


@dataclass(frozen=True)
class Command:
    """One process: its arguments, and the file its standard output becomes (or none)."""

    stage: str
    argv: Tuple[str, ...]
    output: Optional[Path] = None

    def shell(self) -> str:
        """The command as a line for a shell."""
        line = shlex.join(self.argv)
        if self.output is None:
            return line
        part, output = shlex.quote(str(temporary_path(self.output))), shlex.quote(str(self.output))
        return f"{line} >{part} && mv {part} {output}"


@dataclass(frozen=True)
class Prepared:
    """A folder that ``data_prep`` made: ``bin`` for fairseq, ``raw`` text, ``manifest.json``."""

    folder: Path
    local: Optional[Path] = None
    offline: bool = False
    mirrors: Tuple[str, ...] = ()

    @property
    def manifest(self) -> Path:
        """What ``data_prep`` says it made; written last."""
        return self.folder / "manifest.json"

    def reference(self, test_set: str, language: str) -> Path:
        """The untouched text of a test set."""
        return self.folder / "raw" / f"{test_set}.{language}"


@dataclass(frozen=True)
class Run:
    """One training and what follows it: a row of a table with one seed, and its folder."""

    experiment: Experiment
    data: Prepared
    output: Path
    device: Device
    seed: int
    baseline: Optional[str] = None

    @property
    def folder(self) -> RunFolder:
        """The folder of this run."""
        return self.of(self.experiment.row)

    def of(self, row: str) -> RunFolder:
        """The folder of another row with the same seed."""
        return RunFolder(self.output / row / f"seed-{self.seed}")

    @property
    def checkpoints(self) -> Path:
        """Where fairseq saves."""
        return self.folder.checkpoints

    @property
    def model(self) -> Path:
        """The checkpoint that is evaluated: the average, or the last where none is wanted."""
        return self.folder.averaged if self.experiment["average"] else self.folder.last_checkpoint

    @property
    def test_sets(self) -> Dict[str, str]:
        """Name of each test set -> its fairseq subset."""
        return self.experiment["data.test-sets"]

    def generated(self, test_set: str, row: Optional[str] = None) -> Path:
        """The output of fairseq-generate on a test set."""
        return self.of(row or self.experiment.row).generated(test_set)

    @property
    def batch(self) -> Batch:
        """The update of the configuration, split over the run's devices."""
        batch = self.experiment["batch"]
        return split_batch(batch["tokens-per-update"], batch["max-tokens"], self.device.workers)

    @property
    def left_out(self) -> Optional[str]:
        """What is said where the share of a device is smaller than the longest sentences may be.

        fairseq leaves sentences out that do not fit into ``--max-tokens``, without a word.
        """
        asked, train = self.experiment["batch.max-tokens"], self.experiment["train"]
        longest = min(
            asked, *(train.get(f"max-{side}-positions", 1024) for side in ("source", "target"))
        )
        if self.batch.max_tokens >= longest:
            return None
        return (
            f"sentences of more than {self.batch.max_tokens:,} tokens are left out of training: "
            f"{longest:,} are allowed, but the update is shared by {self.device.workers} devices"
        )

    def scored(self, test_set: str) -> Path:
        """The scores of one test set."""
        return self.folder.scored(test_set)

    def reference(self, test_set: str) -> Path:
        """The reference of a test set: untouched text in the target language."""
        return self.data.reference(test_set, self.experiment["data.target-lang"])


def environment(device: Device) -> Dict[str, str]:
    """The variables the commands need, beside those of the user."""
    folders = [str(USER_DIR.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(os.pathsep.join(folders).split(os.pathsep)))
    }
    if device.threads:
        variables["OMP_NUM_THREADS"] = str(device.threads)
    if not device.gpus:
        # Threads that spin while they wait make training ten times slower on cores in other use.
        variables["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")
    return variables


def prepare(run: Run) -> Optional[Command]:
    """Download, segment and binarise; ``None`` where the data is made by someone else."""
    recipe = run.experiment["data.recipe"]
    if recipe is None:
        return None
    pair = f"{run.experiment['data.source-lang']}-{run.experiment['data.target-lang']}"
    arguments = [recipe, "--pair", pair, "--output", str(run.data.folder)]
    if run.data.local is not None:
        arguments += ["--data", str(run.data.local)]
    if run.experiment["data.corpora"] is not None:
        arguments += ["--corpora", run.experiment["data.corpora"]]
    for mirror in run.data.mirrors:
        arguments += ["--mirror", mirror]
    if run.data.offline:
        arguments.append("--offline")
    return _python("prepare", "-m", "capsnmt.corpora", *arguments)


def train(run: Run) -> Command:
    """fairseq-train with the update of the configuration on the run's device."""
    experiment, device, batch = run.experiment, run.device, run.batch
    # The first process would else send the checkpoint to the others in a form that torch >= 2.6
    # does not load: no training on several GPUs could resume.
    several = ["--load-checkpoint-on-all-dp-ranks"] if device.workers > 1 else []
    by_gloo = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    arguments = [
        *train_prefix(device, sys.executable),
        *_common(run),
        *("--arch", experiment["arch"]),
        *flags.argv(experiment["train"]),
        *("--max-tokens", str(batch.max_tokens), "--update-freq", str(batch.update_freq)),
        # Without a world size fairseq takes every GPU it sees.
        *("--distributed-world-size", str(device.workers)),
        *several,
        *(by_gloo if not device.gpus and device.workers > 1 else []),
        *(["--fp16"] if device.gpus and experiment["precision"] == "fp16" else []),
        *("--seed", str(run.seed), "--save-dir", str(run.checkpoints)),
        *("--log-format", "json"),
    ]
    return Command("train", tuple(arguments))


def average(run: Run) -> Optional[Command]:
    """The mean of the last or best checkpoints; ``None`` where one checkpoint is evaluated."""
    if not run.experiment["average"]:
        return None
    ((how, number),) = run.experiment["average"].items()
    return _python(
        "average",
        *("-m", "capsnmt.checkpoints.average", str(run.checkpoints)),
        *("--output", str(run.model), f"--{how}", str(number)),
    )


def generate(run: Run, test_set: str) -> Command:
    """fairseq-generate on one test set; the pieces of words stay, evaluation joins them."""
    return _python(
        f"generate {test_set}",
        *("-m", "fairseq_cli.generate"),
        *_common(run),
        *("--path", str(run.model), "--gen-subset", run.test_sets[test_set]),
        *flags.argv(run.experiment["generate"] or {}),
        *("--seed", str(run.seed), "--log-format", "none"),
        output=run.generated(test_set),
    )


def score(run: Run, test_set: str) -> Command:
    """The metrics of one test set, with the significance against the baseline's output."""
    row, baseline = run.experiment.row, run.baseline
    against = f"{baseline}={run.generated(test_set, baseline)}" if baseline else None
    return _python(
        f"score {test_set}",
        *("-m", "capsnmt.evaluation", f"{row}={run.generated(test_set)}"),
        *(["--baseline", against] if against else []),
        *("--reference", str(run.reference(test_set))),
        *flags.argv(run.experiment["score"] or {}),
        *("--target-lang", run.experiment["data.target-lang"]),
        *("--json", str(run.scored(test_set))),
    )


def _common(run: Run) -> List[str]:
    """What training and generation both need."""
    data = run.experiment
    languages = [
        "--source-lang",
        data["data.source-lang"],
        "--target-lang",
        data["data.target-lang"],
    ]
    cpu = [] if run.device.gpus else ["--cpu"]
    # The fork's default multiple of 8 drops the last batch of every data set whose size is none:
    # sentences would be missing in validation and in the output.
    whole = ["--required-batch-size-multiple", "1"]
    return [str(run.data.folder / "bin"), "--user-dir", str(USER_DIR), *languages, *cpu, *whole]


def _python(stage: str, *arguments: str, output: Optional[Path] = None) -> Command:
    return Command(stage, (sys.executable, *arguments), output)
