"""The records in a run's folder."""

from __future__ import annotations

from typing import Annotated, Any, Dict, Literal, Optional, Tuple, Union

from msgspec import Meta, field

from capsnmt import records
from capsnmt.records import Record

# The values of train.task that train a sentence classifier.
SENTENCE_TASKS = ("probing", "logical_inference")
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
    settings: Dict[str, Any]  # the resolved configuration
    task: Optional[str] = None  # the probing task, if it is one
    data: str  # the folder of the prepared data, absolute
    sources: Optional[str] = None  # the folder of raw data that the user has, absolute
    mirrors: Tuple[str, ...] = ()  # URLs that are tried when a file's own source is down
    device: Device = Device()
    baseline: Optional[str] = None  # the row that this run is tested against
    sweep: Optional[SweepPoint] = None
    initial: Optional[str] = None  # the row that the training starts from
    command: Tuple[str, ...] = ()  # of the launcher

    @property
    def dataset(self) -> Optional[str]:
        """The data set of the configuration."""
        return self.settings.get("dataset")

    @property
    def architecture(self) -> str:
        """The value of ``--arch``."""
        return self._setting("arch", str)

    @property
    def train(self) -> Dict[str, Any]:
        """The flags of fairseq-train."""
        return self._setting("train", Dict[str, Any], {})

    @property
    def batch(self) -> Dict[str, Any]:
        """The size of an update."""
        return self._setting("batch", Dict[str, Any], {})

    @property
    def fairseq_task(self) -> str:
        """The value of ``--task``: ``translation``, ``probing`` or ``logical_inference``."""
        return str(self.train.get("task", "translation"))

    @property
    def classifies(self) -> bool:
        """Whether the run trains a sentence classifier; otherwise it translates."""
        return self.fairseq_task in SENTENCE_TASKS

    @property
    def languages(self) -> Tuple[str, str]:
        """Source and target language of a translation run."""
        return self._setting("data.source-lang", str), self._setting("data.target-lang", str)

    @property
    def test_sets(self) -> Dict[str, str]:
        """Name of each test set of a translation run -> its fairseq subset."""
        return self._setting("data.test-sets", Dict[str, str])

    @property
    def averages(self) -> bool:
        """Whether an average of checkpoints is evaluated; otherwise the last checkpoint."""
        return bool(self.settings.get("average"))

    def _setting(self, name: str, kind: Any, default: Any = None) -> Any:
        value: Any = self.settings
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        found = {name: default if value is None else value}
        source = f"config.json of {self.row}, seed {self.seed}: settings"
        return records.build(found, Dict[str, kind], source)[name]


class InitialModel(Record, frozen=True, kw_only=True):
    """The checkpoint of another row that a training started from."""

    row: str
    checkpoint: str
    checksum: str  # SHA-256
    updates: int  # that it was trained for, including those of its own initial model

    def __str__(self) -> str:
        return f"{self.row} ({self.updates:,} updates)"


class TrainingRecord(Record, frozen=True, kw_only=True, rename="kebab"):
    """What a run was trained with: ``training.json``, written when the training starts."""

    vocabulary: Dict[str, str]  # checksums of the files that identify the training data
    device: str  # in words
    device_name: str  # of the hardware
    versions: Dict[str, str]  # package -> version
    initial: Optional[InitialModel] = None
    updates: Optional[int] = None  # of the finished training; None until then
    parameters: Optional[int] = None  # learned ones; None until the run is finished


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
