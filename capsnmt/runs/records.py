"""The records in a run's folder."""

from __future__ import annotations

from typing import Annotated, Any, Dict, Literal, Mapping, Optional, Tuple, Union

from msgspec import Meta, field

from capsnmt.records import Record, RecordError

# The values of train.task that train a sentence classifier.
SENTENCE_TASKS = ("probing", "logical_inference")
SweepValue = Union[bool, int, float, str]
# A part of the names of a row's folder and of the figures of a sweep.
FlagName = Annotated[str, Meta(pattern=r"^\w[\w-]*$", max_length=200)]


class Device(Record, frozen=True, kw_only=True):
    """The GPUs of each node, or (``gpus == 0``) the processes on its CPU.

    Attributes:
        gpus: GPUs of a node.
        processes: on the CPU of a node.
        nodes: machines; several are those of a SLURM job.
        threads: of each process.
    """

    gpus: int = 0
    processes: int = 1
    nodes: int = 1
    threads: Optional[int] = None

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
    """One value of a sweep, which launches a row with several values of one flag.

    Attributes:
        row: the row that is swept.
        flag: the flag of fairseq-train, without dashes.
        value: its value.
    """

    row: str
    flag: FlagName
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
    """What a run is: ``config.json``, complete before anything runs.

    Attributes:
        version: of the format.
        row: the name of the configuration.
        seed: the seed of the training.
        settings: the resolved configuration.
        task: the probing task, if it is one.
        data: the folder of the prepared data, absolute.
        sources: the folder of the raw data that the user has, absolute.
        mirrors: URLs that are tried when the source of a file is down.
        device: the device of the training.
        baseline: the row that this run is tested against.
        sweep: the point of a sweep, if the run belongs to one.
        initial: the row that the training starts from, if it is another one.
        command: the command line of the launcher.
    """

    version: Literal[2] = 2
    row: str
    seed: int
    settings: Dict[str, Any]
    task: Optional[str] = None
    data: str
    sources: Optional[str] = None
    mirrors: Tuple[str, ...] = ()
    device: Device = Device()
    baseline: Optional[str] = None
    sweep: Optional[SweepPoint] = None
    initial: Optional[str] = None
    command: Tuple[str, ...] = ()

    @property
    def dataset(self) -> Optional[str]:
        """The data set of the configuration."""
        return self.settings.get("dataset")

    @property
    def architecture(self) -> str:
        """The value of ``--arch``."""
        return str(self._setting("arch"))

    @property
    def train(self) -> Mapping[str, Any]:
        """The flags of fairseq-train."""
        return self.settings.get("train") or {}

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
        return (
            str(self._setting("data", "source-lang")),
            str(self._setting("data", "target-lang")),
        )

    @property
    def test_sets(self) -> Mapping[str, str]:
        """Name of each test set of a translation run -> its fairseq subset."""
        return self._setting("data", "test-sets")

    @property
    def averages(self) -> bool:
        """Whether an average of checkpoints is evaluated; otherwise the last checkpoint."""
        return bool(self.settings.get("average"))

    def _setting(self, *keys: str) -> Any:
        value: Any = self.settings
        try:
            for key in keys:
                value = value[key]
        except (KeyError, TypeError):
            raise RecordError(
                f"config.json of {self.row}, seed {self.seed}: lacks settings.{'.'.join(keys)}"
            ) from None
        return value


class InitialModel(Record, frozen=True, kw_only=True):
    """The checkpoint of another row that a training started from.

    Attributes:
        row: the other row.
        checkpoint: the file.
        checksum: its SHA-256.
        updates: the updates that it was trained for, including those of its own initial model.
    """

    row: str
    checkpoint: str
    checksum: str
    updates: int

    def __str__(self) -> str:
        return f"{self.row} ({self.updates:,} updates)"


class TrainingRecord(Record, frozen=True, kw_only=True, rename="kebab"):
    """What a run was trained with: ``training.json``, written when the training starts.

    Attributes:
        vocabulary: checksums of the files that identify the training data.
        device, device_name: the device of the training in words, and the name of the hardware.
        versions: package -> version.
        initial: the model that the training started from, if it is one of another row.
        updates: of the finished training; ``None`` until it is finished.
        parameters: the number of learned parameters; ``None`` until the run is finished.
    """

    vocabulary: Dict[str, str]
    device: str
    device_name: str
    versions: Dict[str, str]
    initial: Optional[InitialModel] = None
    updates: Optional[int] = None
    parameters: Optional[int] = None


class Bucket(Record, frozen=True, kw_only=True):
    """A part of the examples of a split: accuracy in percent."""

    examples: int
    accuracy: float


class Measures(Record, frozen=True, kw_only=True):
    """The measures of a classifier on one split; accuracies and F1 in percent.

    Attributes:
        examples: the size of the split.
        accuracy, macro_f1: of the classifier.
        majority: the accuracy of always predicting the most frequent class.
        f1_by_class: class -> F1.
        by_bucket: minimal length (probing) or number of operators (logical inference) -> accuracy.
    """

    examples: int
    accuracy: float
    macro_f1: float
    majority: float
    f1_by_class: Dict[str, float] = field(default_factory=dict)
    by_bucket: Dict[int, Bucket] = field(default_factory=dict)


class ClassifierResult(Record, frozen=True, kw_only=True):
    """The evaluation of a sentence classifier: ``results.json``.

    Attributes:
        task: ``probing`` or ``logical_inference``.
        probing_task: the probing task, if it is one.
        updates: the updates of the evaluated checkpoint.
        parameters: the number of parameters of the model.
        splits: split -> measures.
    """

    task: str
    probing_task: Optional[str]
    updates: int
    parameters: int
    splits: Dict[str, Measures]
