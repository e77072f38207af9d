"""The scores of some systems on a test set: the record that ``capsnmt-evaluate --json`` writes."""

import statistics
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Annotated, Dict, Iterable, List, Literal, Optional, Sequence, Tuple

from msgspec import Meta, field

from capsnmt.records import Record

# Key of each metric, in the order of every report, and the name that sacreBLEU prints.
METRICS = {"bleu": "BLEU", "chrf": "chrF2", "chrf++": "chrF2++", "ter": "TER"}

# Key of each tokenised BLEU, and the published numbers that it is comparable with.
MULTI_BLEU, COMPOUND_SPLIT = "multi-bleu", "compound-split"
COMPARABLE = {
    MULTI_BLEU: "multi-bleu.perl, case-sensitive, on the tokens that its signature names (of "
    "Moses: Ampomah et al. 2020, Es-En)",
    COMPOUND_SPLIT: "multi-bleu.perl after splitting compounds, ##AT##-##AT## (WMT14 En-De of "
    "Vaswani et al. 2017 and tensor2tensor's get_ende_bleu.sh)",
}

# The paired tests of two outputs, as the command line names them, and their numbers of samples.
Method = Literal["approximate-randomization", "centred-bootstrap", "bootstrap"]
RANDOMIZATION: Method = "approximate-randomization"
CENTRED: Method = "centred-bootstrap"
BOOTSTRAP: Method = "bootstrap"
SAMPLES = {RANDOMIZATION: 10000, CENTRED: 10000, BOOTSTRAP: 1000}
SEED = 12345
FEW = 10  # segments: one trial in 2^9 exchanges all or none of them
DESCRIPTIONS = {
    RANDOMIZATION: "paired approximate randomization (Riezler and Maxwell 2005), two-sided, "
    "{:,} trials",
    CENTRED: "paired bootstrap, centred, two-sided, {:,} resamples",
    BOOTSTRAP: "sacreBLEU's paired bootstrap, one-sided in effect (p < 0.05 in 11% of the "
    "comparisons without a difference), {:,} resamples",
}
# The marks of Ampomah et al. 2020: p below 0.05, below 0.01, here corrected for their number.
LEVELS = {"‡": 0.01, "†": 0.05}


def digits(metric: str) -> int:
    """Return the decimals of a printed score: 4 for means of segment scores, most of them 0..1.

    >>> digits("bleu"), digits("COMET")
    (2, 4)
    """
    return 2 if metric in METRICS or metric in COMPARABLE else 4


@dataclass(frozen=True)
class Spread:
    """A number over the seeds of a system.

    **D**: ``std`` is the standard deviation of a sample (n - 1); ``None`` for a single value.
    """

    mean: float
    std: Optional[float]
    values: Sequence[float]

    def text(self, form: str = ".2f") -> str:
        """Mean and deviation.

        >>> Spread(20.5, 1.25, []).text(), Spread(20.5, None, []).text(".1f")
        ('20.50 ± 1.25', '20.5')
        """
        return f"{self.mean:{form}}" + ("" if self.std is None else f" ± {self.std:{form}}")


def spread(values: Sequence[float]) -> Spread:
    """Compute mean and standard deviation, each the nearest float.

    **D**: by decimals, because `statistics` rounds the deviation of floats twice before Python
    3.11, so that its last digit would depend on the host.

    >>> spread([40.0, 42.0])
    Spread(mean=41.0, std=1.4142135623730951, values=[40.0, 42.0])
    >>> spread([20.68648385417908, 20.9690406502941, 20.725852601446515]).std
    0.15304066365647626
    """
    deviation = float(statistics.stdev(map(Decimal, values))) if len(values) > 1 else None
    return Spread(statistics.fmean(values), deviation, list(values))


class Test(Record, frozen=True, kw_only=True):
    """The test of significance: all systems against the first, which ``baseline`` names."""

    baseline: str
    method: Method
    samples: int
    seed: int

    @property
    def in_words(self) -> str:
        """The method, its number of samples and its seed."""
        return f"{DESCRIPTIONS[self.method].format(self.samples)}, seed {self.seed}"


class Score(Record, frozen=True, omit_defaults=True):
    """The score of an output by one metric, and how it compares with the baseline's."""

    score: float  # 0..100; of TER, edits per 100 reference words; of segments' scores, their mean
    signature: str  # sacreBLEU's, or one in its form, without the test, which changes no score
    delta: Optional[float] = None  # difference to the baseline
    p_value: Optional[float] = None  # by the method of the test
    interval: Optional[Tuple[float, float]] = None  # of delta, 95%, over sentences
    ci: Optional[float] = None  # half the width of the bootstrap's 95% confidence interval


class SignTest(Record, frozen=True):
    """How many sentences a system translates better and worse than the baseline."""

    better: int
    worse: int
    ties: int
    p_value: float  # two-sided


class OutputScores(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The scores of one output.

    ``scores`` has a key of ``METRICS`` or ``COMPARABLE``, or the name of a metric of segments.
    There is no tokenised BLEU and no chrF++ where the target language does not separate words by
    spaces; BLEU, which tests and reports are of, is always there.
    """

    path: str
    scores: Dict[str, Score]
    bleu_by_length: Dict[str, float] = field(default_factory=dict)  # by bucket of source lengths
    sign_test: Optional[SignTest] = None  # absent for the baseline and without a test

    def __post_init__(self) -> None:
        if "bleu" not in self.scores:
            raise ValueError("lacks the score bleu")


class SystemScores(Record, frozen=True):
    """The scores of a system: of one output, or of one for each seed it was trained with."""

    name: str
    outputs: Annotated[List[OutputScores], Meta(min_length=1)]

    def spread(self, metric: str) -> Spread:
        """Mean and standard deviation of a score over the outputs."""
        return spread([output.scores[metric].score for output in self.outputs])


class Comparison(Record, frozen=True, kw_only=True, omit_defaults=True):
    """How a system differs from the baseline, over all that is given: seeds, sentences, test sets.

    ``p_value`` is two-sided. Between one output of each it is that of the test of the evaluation;
    between seeds of both it is over seeds and sentences
    (:func:`~capsnmt.evaluation.significance.difference_of`); else there is none.
    """

    system: str
    baseline: str
    metric: str
    seeds: Tuple[int, int]  # of the system, of the baseline
    delta: float  # difference of the means over seeds and test sets
    interval: Optional[Tuple[float, float]] = None  # 95%
    p_value: Optional[float] = None
    # Holm's, among the systems by this metric; over seeds of the larger of p and sentences_p_value
    corrected_p_value: Optional[float] = None
    # over seeds and sentences: the two parts of the variance of delta, degrees of freedom
    variance_over_seeds: Optional[float] = None
    variance_over_sentences: Optional[float] = None
    freedom: Optional[float] = None
    deviation: Optional[float] = None  # of a seed's score, of both systems together
    # of these seeds, over sentences alone: the centred bootstrap of the means
    sentences_p_value: Optional[float] = None
    # of these sentences, over seeds alone: Welch's test
    welch_p_value: Optional[float] = None
    welch_interval: Optional[Tuple[float, float]] = None

    @property
    def mark(self) -> str:
        """The mark of a significant difference, corrected; empty if there is none."""
        p = 1.0 if self.corrected_p_value is None else self.corrected_p_value
        return next((mark for mark, level in LEVELS.items() if p < level), "")


class Plan(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What an experiment with more seeds would show, by the deviations of a finished one."""

    system: str
    baseline: str
    metric: str
    effect: float  # the difference that is to be shown
    deviation: float  # of a seed's score
    deviation_over_sentences: float  # of the difference, which more seeds do not lower
    power: Dict[int, float]  # seeds of each system -> probability of p < 0.05
    needed: Optional[int] = None  # seeds for a probability of 0.8; None above 200
    shown: float  # the difference that the finished seeds show with a probability of 0.8


def checksum(lines: Iterable[str]) -> str:
    """Return the SHA-256 of a text that is scored, in Unicode's form NFC."""
    text = unicodedata.normalize("NFC", "\n".join(lines))
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Evaluation(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The scores of some systems on one test set."""

    reference: str  # its file; of several references the first
    references: List[str] = field(default_factory=list)  # their names, if there are several
    # what was compared: SHA-256 of the references, one after the other, and of the source where an
    # output has it, as lines; older records have none
    checksums: Dict[str, str] = field(default_factory=dict)
    segments: int  # number of sentences
    target_lang: Optional[str]
    length_unit: Optional[str]  # what a source length counts; None without a source
    segments_by_length: Dict[str, int]  # sentences in each bucket of source lengths that has some
    test: Optional[Test]
    systems: Annotated[List[SystemScores], Meta(min_length=1)]  # the baseline comes first
    comparisons: List[Comparison] = field(default_factory=list)  # with the baseline
    plans: List[Plan] = field(default_factory=list)  # of more seeds, where one is asked for
    versions: Dict[str, Optional[str]]  # of the packages that determine scores

    def system(self, name: str) -> SystemScores:
        """Return the scores of a system, or raise a ``KeyError``."""
        return {system.name: system for system in self.systems}[name]


class Evaluations(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The scores of some systems on several test sets, and their differences over all of them."""

    test_sets: Dict[str, Evaluation]
    comparisons: List[Comparison] = field(default_factory=list)
    plans: List[Plan] = field(default_factory=list)


def common_metrics(outputs: Sequence[OutputScores]) -> Dict[str, str]:
    """Return key and name of the metrics of all outputs, tokenised BLEU last."""
    keys = [key for key in outputs[0].scores if all(key in each.scores for each in outputs)]
    return {key: METRICS.get(key, key) for key in sorted(keys, key=COMPARABLE.__contains__)}
