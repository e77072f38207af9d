"""A run's folder: its layout, and the records in it."""

from pathlib import Path
from typing import Annotated, Dict, Literal, Optional, Tuple, Union

from msgspec import Meta, field

from capsnmt import records
from capsnmt.configurations import Settings
from capsnmt.records import Record, RecordError

SweepValue = Union[bool, int, float, str]
# A part of the names of a row's folder and of the figures of a sweep.
FlagName = Annotated[str, Meta(pattern=r"^\w[\w-]*$", max_length=200)]


class Device(Record, frozen=True, kw_only=True):
    """The GPUs of each node, or (``gpus == 0``) the processes on its CPU."""

    gpus: int = 0  # of a node
    processes: int = 1  # on the CPU of a node
    nodes: int = 1  # several are those of a SLURM job
    threads: Optional[int] = None  # of each process

    @property
    def workers(self) -> int:
        """The processes that share one update."""
        return self.nodes * (self.gpus or self.processes)

    @property
    def cores(self) -> int:
        """The cores of a node that are in use.

        **D**: without ``threads``, two for each GPU: one computes, one loads data.
        """
        return (self.gpus or self.processes) * (self.threads or (2 if self.gpus else 1))

    def __str__(self) -> str:
        plural = "" if (self.gpus or self.processes) == 1 else "s"
        if self.gpus:
            node = f"{self.gpus} GPU{plural}"
        else:
            node = "CPU" if self.processes == 1 else f"CPU ({self.processes} processes)"
        return node if self.nodes == 1 else f"{self.nodes} nodes x {node}"


class SweepPoint(Record, frozen=True, kw_only=True):
    """One value of a sweep, which launches a row with several values of one flag."""

    row: str  # that is swept
    flag: FlagName  # of fairseq-train, without dashes
    value: SweepValue

    @property
    def label(self) -> str:
        """The value as text."""
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)

    @property
    def name(self) -> str:
        """The name of the row with this value.

        >>> SweepPoint(row="em_routing", flag="head-capsules", value=8).name
        'em_routing_head-capsules-8'
        """
        return f"{self.row}_{self.flag}-{self.label}"


class RunConfig(Record, frozen=True, kw_only=True):
    """What a run is: ``config.json``, complete before anything runs."""

    version: Literal[2] = 2  # of the format
    row: str  # the name of the configuration
    seed: int
    settings: Settings  # the resolved configuration
    task: Optional[str] = None  # the probing task, if it is one
    data: str  # the folder of the prepared data, absolute or relative to the run's
    sources: Optional[str] = None  # the folder of raw data that the user has, absolute
    mirrors: Tuple[str, ...] = ()  # URLs that are tried when a file's own source is down
    device: Device = Device()
    baseline: Optional[str] = None  # the row that this run is tested against
    sweep: Optional[SweepPoint] = None
    initial: Optional[str] = None  # the row that the training starts from
    command: Tuple[str, ...] = ()  # of the launcher


class InitialModel(Record, frozen=True, kw_only=True):
    """The checkpoint of another row that a training started from."""

    row: str
    checkpoint: str
    checksum: str  # SHA-256
    updates: int  # that it was trained for, including those of its own initial model

    def __str__(self) -> str:
        return f"{self.row} ({self.updates:,} updates)"


class Machine(Record, frozen=True, kw_only=True, rename="kebab"):
    """What trained a run, or a part of it."""

    device: str  # in words
    device_name: str  # of the hardware
    threads: Optional[int] = None  # of each process; None: not known
    precision: Optional[str] = None  # of its arithmetic; older records have none
    versions: Dict[str, str]  # package -> version


class EarlierMachine(Machine, frozen=True, kw_only=True, rename="kebab"):
    """What trained the first part of a run, which went on otherwise."""

    updates: int  # that had been made in the end


class TrainingRecord(Machine, frozen=True, kw_only=True, rename="kebab"):
    """What a run was trained with: ``training.json``, written when the training starts."""

    vocabulary: Dict[str, str]  # checksums of the dictionaries, or of a classifier's files
    # signatures of the other files that a training reads; older records have none
    data: Dict[str, str] = field(default_factory=dict)
    earlier: Tuple[EarlierMachine, ...] = ()  # before it was resumed on another
    initial: Optional[InitialModel] = None
    updates: Optional[int] = None  # of the finished training; None until then
    parameters: Optional[int] = None  # learned ones; None until the run is finished

    @property
    def parts(self) -> Tuple[Machine, ...]:
        """What has trained the run, in order."""
        return (*self.earlier, self)


class Bucket(Record, frozen=True, kw_only=True):
    """A part of the examples of a split: accuracy in percent."""

    examples: int
    accuracy: float


class Measures(Record, frozen=True, kw_only=True):
    """The measures of a classifier on one split; accuracies and F1 in percent."""

    examples: int
    accuracy: float
    macro_f1: float
    majority: float  # the accuracy of always predicting the most frequent class
    f1_by_class: Dict[str, float] = field(default_factory=dict)
    # by minimal length (probing) or number of operators (logical inference)
    by_bucket: Dict[int, Bucket] = field(default_factory=dict)


class ClassifierResult(Record, frozen=True, kw_only=True):
    """The evaluation of a sentence classifier: ``results.json``."""

    task: str  # probing or logical_inference
    probing_task: Optional[str]
    updates: int  # of the evaluated checkpoint
    parameters: int
    splits: Dict[str, Measures]


class RunFolder:
    """The folder of one run, ``OUTPUT/ROW/seed-S``, or ``OUTPUT/ROW/TASK/seed-S``.

    The attributes name its files, whether they exist or not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"  # what the run is: RunConfig
        self.training = path / "training.json"  # what it was trained with: TrainingRecord
        self.commands = path / "commands.sh"  # its commands, as a script
        self.steps = path / "steps.json"  # the completed steps
        self.lock = path / ".lock"  # of the launcher that uses the folder
        self.train_log = path / "train.log"  # the statistics of the training, as JSON lines
        self.console_log = path / "console.log"  # all other output of the commands
        self.checkpoints = path / "checkpoints"  # where fairseq-train saves
        self.last_checkpoint = self.checkpoints / "checkpoint_last.pt"  # to resume from
        self.best_checkpoint = self.checkpoints / "checkpoint_best.pt"  # by the validation
        self.averaged = path / "averaged.pt"  # the average of several checkpoints
        self.scores = path / "scores.json"  # of all test sets: a translation run is finished
        self.result = path / "results.json"  # ClassifierResult: a classification run is finished
        self.job_script = path / "job.sh"  # for SLURM
        self.job = path / "job.json"  # the SLURM job
        self.job_lock = path / ".job.lock"  # of the launcher that submits it
        self.row = path.parent  # the folder of the row (and task), with its seeds
        self.summary = self.row / "summary.json"  # the means over the seeds

    def __str__(self) -> str:
        return str(self.path)

    def generated(self, test_set: str) -> Path:
        """The output of fairseq-generate on a test set."""
        return self.path / f"generate-{test_set}.txt"

    def scored(self, test_set: str) -> Path:
        """The scores of one test set: the document of ``capsnmt-evaluate --json``."""
        return self.path / f"scores-{test_set}.json"

    def job_log(self, job: str) -> Path:
        """The output of a SLURM job; ``%j`` stands for its number in a batch script."""
        return self.path / f"slurm-{job}.log"

    @property
    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.config.is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished."""
        return self.scores.is_file() or self.result.is_file()

    def model(self, config: RunConfig) -> Path:
        """The checkpoint that is evaluated."""
        if config.settings.classifies:
            return self.best_checkpoint
        return self.averaged if config.settings.average else self.last_checkpoint

    def data(self, config: RunConfig) -> Path:
        """The prepared data: where the run found it, or next to the row if both were moved."""
        output = self.path.absolute().parents[2 if config.task else 1]
        recorded, beside = self.path / config.data, output / "data"
        return beside if beside.is_dir() and not recorded.is_dir() else recorded

    def read_config(self) -> RunConfig:
        """Read ``config.json``."""
        value = records.load(self.config)
        if isinstance(value, dict) and value.get("version") != 2:
            raise RecordError(
                f"{self.config} was made by another version of capsnmt; launch the row again with "
                "another --output, or delete the folder"
            )
        return records.build(value, RunConfig, self.config)

    def read_training(self) -> TrainingRecord:
        """Read ``training.json``."""
        return records.read(self.training, TrainingRecord)
