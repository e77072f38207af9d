"""The records in a run's folder as dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

from capsnmt.files import check_file_name
from capsnmt.runs.initial_model import InitialModel
from capsnmt.runs.json_objects import RecordError, json_key, known_fields, whole_number

# The values of train.task (and, in older runs, of dataset) that train a sentence classifier.
SENTENCE_TASKS = ("probing", "logical_inference")
SweepValue = Union[bool, int, float, str]


@dataclass(frozen=True)
class SweepPoint:
    """One value of a sweep, which launches a row with several values of one flag.

    Attributes:
        row: the row that is swept.
        flag: the flag of fairseq-train, without dashes.
        value: its value.
    """

    row: str
    flag: str
    value: SweepValue

    @property
    def label(self) -> str:
        """The value as text."""
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)

    @property
    def name(self) -> str:
        """The name of the row with this value.

        >>> SweepPoint("em_routing", "head-capsules", 8).name
        'em_routing_head-capsules-8'
        """
        return f"{self.row}_{self.flag}-{self.label}"

    @classmethod
    def from_json(cls, value: Any, source: object) -> SweepPoint:
        """Read the content of ``sweep`` in ``config.json``.

        Raises:
            ConfigurationError: a key is missing, or a value is not allowed.
        """
        known = known_fields(cls, value, source)
        if not isinstance(known["row"], str) or not isinstance(known["flag"], str):
            raise RecordError(source, "a text as row and flag of sweep")
        if not isinstance(known["value"], (bool, int, float, str)):
            raise RecordError(source, "a value of sweep")
        check_file_name(known["flag"], f"{source}: sweep.flag")  # part of the names of figures
        return cls(**known)


@dataclass(frozen=True)
class Description:
    """What a run is and what it was made with: ``config.json``.

    Attributes:
        row: the name of the configuration.
        seed: the seed of the training.
        settings: the resolved configuration.
        task: the probing task, if it is one.
        data: the folder of the prepared data.
        vocabulary: checksums of the files that identify the training data.
        baseline: the row that this run was tested against.
        sweep: the point of a sweep, if the run belongs to one.
        initial: the model that the training started from, if it is one of another row.
        parameters: the number of learned parameters of a finished translation run.
        device, device_name, threads: the device of the training.
        command: the command line of the launcher.
        versions: package -> version.
    """

    row: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    task: Optional[str] = None
    data: Optional[str] = None
    vocabulary: Mapping[str, str] = field(default_factory=dict)
    baseline: Optional[str] = None
    sweep: Optional[SweepPoint] = None
    initial: Optional[InitialModel] = None
    parameters: Optional[int] = None
    device: Optional[str] = None
    device_name: Optional[str] = None
    threads: Optional[int] = None
    command: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def dataset(self) -> Optional[str]:
        """The data set of the configuration."""
        return self.settings.get("dataset")

    @property
    def architecture(self) -> str:
        """The value of ``--arch``."""
        return str(self.settings["arch"])

    @property
    def train(self) -> Mapping[str, Any]:
        """The flags of fairseq-train."""
        return self.settings.get("train") or {}

    @property
    def fairseq_task(self) -> str:
        """The value of ``--task``: ``translation``, ``probing`` or ``logical_inference``."""
        if self.dataset in SENTENCE_TASKS:  # in older runs
            return str(self.dataset)
        return str(self.train.get("task", "translation"))

    @property
    def classifies(self) -> bool:
        """Whether the run trains a sentence classifier; otherwise it translates."""
        return self.fairseq_task in SENTENCE_TASKS

    @property
    def languages(self) -> Tuple[str, str]:
        """Source and target language of a translation run."""
        data = self.settings["data"]
        return str(data["source-lang"]), str(data["target-lang"])

    @property
    def test_sets(self) -> Mapping[str, str]:
        """Name of each test set of a translation run -> its fairseq subset."""
        return self.settings["data"]["test-sets"]

    @property
    def averages(self) -> bool:
        """Whether an average of checkpoints is evaluated; otherwise the last checkpoint."""
        return bool(self.settings.get("average"))

    def to_json(self) -> Dict[str, Any]:
        """The content of ``config.json``."""
        parts = {"sweep": self.sweep, "initial": self.initial}
        inner = {name: None if part is None else vars(part) for name, part in parts.items()}
        return {json_key(name): value for name, value in {**vars(self), **inner}.items()}

    @classmethod
    def from_json(cls, value: Any, source: object) -> Description:
        """Read the content of ``config.json``; unknown keys are ignored.

        Args:
            value: the parsed JSON.
            source: the name of the file, for an error.

        Raises:
            RecordError: a key is missing or a value has the wrong type.
        """
        known = known_fields(cls, value, source)
        known["row"], known["seed"] = str(known["row"]), whole_number(known["seed"], "seed", source)
        for name in ("settings", "vocabulary", "versions"):
            if not isinstance(known.get(name) or {}, dict):
                raise RecordError(source, name)
            known[name] = known.get(name) or {}
        for name in ("task", "data", "baseline", "device"):
            if not isinstance(known.get(name), (str, type(None))):
                raise RecordError(source, f"a text as {name}")
        if known.get("sweep") is not None:
            known["sweep"] = SweepPoint.from_json(known["sweep"], source)
        if known.get("initial") is not None:
            known["initial"] = InitialModel.from_json(known["initial"], source)
        if known.get("parameters") is not None:
            known["parameters"] = whole_number(known["parameters"], "parameters", source)
        return cls(**known)


@dataclass(frozen=True)
class Bucket:
    """A part of the examples of a split: accuracy in percent."""

    examples: int
    accuracy: float


@dataclass(frozen=True)
class Measures:
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
    f1_by_class: Mapping[str, float] = field(default_factory=dict)
    by_bucket: Mapping[int, Bucket] = field(default_factory=dict)

    def to_json(self) -> Dict[str, Any]:
        """The measures as JSON."""
        buckets = {str(number): vars(bucket) for number, bucket in self.by_bucket.items()}
        return {**vars(self), "by_bucket": buckets}

    @classmethod
    def from_json(cls, value: Any, source: object) -> Measures:
        """Read :meth:`to_json`.

        Raises:
            RecordError: a key is missing or a value has the wrong type.
        """
        known = known_fields(cls, value, source)
        buckets = {
            whole_number(name, "by_bucket", source): Bucket(**known_fields(Bucket, bucket, source))
            for name, bucket in known.get("by_bucket", {}).items()
        }
        return cls(**{**known, "by_bucket": buckets})


@dataclass(frozen=True)
class ClassifierResult:
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
    splits: Mapping[str, Measures]

    @property
    def test(self) -> Measures:
        """The measures of the test split."""
        return self.splits["test"]

    def to_json(self) -> Dict[str, Any]:
        """The content of ``results.json``."""
        splits = {split: measures.to_json() for split, measures in self.splits.items()}
        return {**vars(self), "splits": splits}

    @classmethod
    def from_json(cls, value: Any, source: object) -> ClassifierResult:
        """Read the content of ``results.json``.

        Raises:
            RecordError: a key or the test split is missing, or a value has the wrong type.
        """
        known = known_fields(cls, value, source)
        if not isinstance(known["splits"], dict) or "test" not in known["splits"]:
            raise RecordError(source, "the split 'test'")
        splits = {
            split: Measures.from_json(measures, source)
            for split, measures in known["splits"].items()
        }
        return cls(**{**known, "splits": splits})


@dataclass(frozen=True)
class StageRecord:
    """A completed stage: a digest of its command and inputs, and the signatures of its outputs."""

    key: str
    outputs: Mapping[str, str]
