"""The rows of the papers' tables, read from their configurations.

A configuration with the key ``paper`` is a row; one without it holds settings that rows extend.
"""

import functools
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Dict, Mapping, Optional, Set, Tuple

from msgspec import Meta

from capsnmt import records
from capsnmt.configurations import find
from capsnmt.files import bundled_folder
from capsnmt.launch.flags import argv

PAPERS = {
    "li2019": "Li et al. 2019",
    "dou2019": "Dou et al. 2019",
    "ampomah2020": "Ampomah et al. 2020",
    "li2021": "Li et al. 2021",
    "duan2020": "Duan et al. 2020",
    "xyc1207": "xyc1207's transformer-revisit",
    "comparison": "Comparison systems",
}

PLAIN = "capsnmt_transformer"  # the architecture with every mechanism off
SUFFIXES = {"base": "", "big": "_big", "iwslt": "_iwslt", "tiny": "_tiny"}
Positive = Annotated[float, Meta(gt=0)]


class Reported(records.Record, frozen=True, kw_only=True, rename="kebab"):
    """What one paper reports about a row; ``None`` where it reports nothing.

    Attributes:
        table: where it is reported.
        name: what the table calls the row.
        baseline: the row of the same dataset to compare with; ``None`` for a baseline itself.
        bleu, validation_bleu: BLEU on the test set and on the validation set.
        parameters: all parameters, such as 86.5M, or those added to the baseline, such as +12.6M.
        training_speed: steps per second.
        decoding_speed: sentences per second.
        note: why our exact count of parameters differs by more than the paper's rounding.
    """

    table: str
    name: str
    baseline: Optional[str] = None
    bleu: Optional[Positive] = None
    validation_bleu: Optional[Positive] = None
    parameters: Optional[Annotated[str, Meta(pattern=r"^\+?\d+(\.\d+)?[KM]$")]] = None
    training_speed: Optional[Positive] = None
    decoding_speed: Optional[Positive] = None
    note: str = ""


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table.

    Attributes:
        dataset: the folder of its configuration.
        name: the name of its configuration.
        arch: its architecture.
        flags: the flags of ``fairseq-train`` that it sets on top of its paper's settings.
        papers: what each paper reports about it, the paper that introduced it first.
        init_from: the row that it starts from, if there is one.
    """

    dataset: str
    name: str
    arch: str
    flags: Mapping[str, Any]
    papers: Mapping[str, Reported]
    init_from: Optional[str] = None

    @property
    def key(self) -> str:
        """The name that commands accept: ``DATASET/ROW``."""
        return f"{self.dataset}/{self.name}"

    @property
    def paper(self) -> str:
        """The paper that introduced the row."""
        return next(iter(self.papers))

    @property
    def reported(self) -> Reported:
        """What that paper reports about the row."""
        return self.papers[self.paper]

    @property
    def baseline(self) -> "PaperRow":
        """The row that it is compared with; a baseline is compared with itself."""
        name = self.reported.baseline
        return load_rows()[f"{self.dataset}/{name}"] if name else self

    @property
    def size(self) -> str:
        """The size of the model, a key of :data:`SUFFIXES`."""
        return {PLAIN + suffix: size for size, suffix in SUFFIXES.items()}[self.arch]

    def command(self, size: Optional[str] = None) -> str:
        """Return the flags of ``fairseq-train`` for the row's model and loss, in any size."""
        arch = PLAIN + SUFFIXES[size] if size else self.arch
        return flag_text({"arch": arch, **self.flags})


def flag_text(flags: Mapping[str, Any]) -> str:
    """Return flags as they are typed.

    >>> flag_text({"mlmha": "M-10", "mlmha-sources": 5})
    '--mlmha M-10 --mlmha-sources 5'
    """
    return shlex.join(argv(flags))


@dataclass(frozen=True)
class Difference:
    """What a paper reports about a row and its baseline, compared.

    Attributes:
        parameters: the number of parameters that the row adds.
        rounding: the largest error of that number by the paper's rounding.
        text: the numbers as reported.
    """

    parameters: float
    rounding: float
    text: str


def reported_difference(row: PaperRow) -> Optional[Difference]:
    """Return the parameters that the row adds to its baseline, as its paper reports them.

    A reported difference, which starts with a plus, is taken as it is; two reported totals are
    subtracted.
    """
    ours = row.reported.parameters
    theirs = row.baseline.papers[row.paper].parameters
    if ours is None or row.reported.baseline is None:
        return None
    if ours.startswith("+"):
        return Difference(*_number(ours), ours)
    if theirs is None or theirs.startswith("+"):
        return None
    (count, rounding), (base, its_rounding) = _number(ours), _number(theirs)
    return Difference(count - base, rounding + its_rounding, f"{theirs} to {ours}")


def _number(text: str) -> Tuple[float, float]:
    """Return a reported number of parameters, and half a unit of its last digit."""
    unit = {"K": 1e3, "M": 1e6}[text[-1]]
    decimals = len(text[:-1].partition(".")[2])
    return float(text[:-1]) * unit, 0.5 * 10**-decimals * unit


def relative_speed(row: PaperRow, phase: str) -> Optional[float]:
    """Return the speed of a row divided by its baseline's; the phase is training or decoding."""
    ours = getattr(row.reported, f"{phase}_speed")
    theirs = getattr(row.baseline.papers[row.paper], f"{phase}_speed")
    return ours / theirs if ours and theirs and row.reported.baseline else None


@functools.cache
def load_rows() -> Mapping[str, PaperRow]:
    """Return every row by its key."""
    paths = sorted(bundled_folder("configs").glob("*/*.yaml"))
    rows = [_read(path) for path in paths if records.load(path).get("paper")]
    return {row.key: row for row in rows}


def _read(path: Path) -> PaperRow:
    """Return the row of a configuration, resolved with all it extends."""
    lineage = [(path, records.load(path))]
    while lineage[0][1].get("extends"):
        family = tuple(each for each, _ in reversed(lineage))
        ancestor = find(lineage[0][1]["extends"], family=family)
        lineage.insert(0, (ancestor, records.load(ancestor)))
    arch, start, train = "", None, {}
    own: Set[str] = set()
    for _, settings in lineage:
        arch, start = settings.get("arch", arch), settings.get("init-from", start)
        for flag, value in settings.get("train", {}).items():
            train[flag] = value
            # A flag that another row sets, such as a number of heads, is also part of this row.
            (own.add if settings.get("paper") else own.discard)(flag)
    flags = {name: value for name, value in train.items() if name in own and value is not None}
    papers = records.build(lineage[-1][1]["paper"], Dict[str, Reported], f"{path}: paper")
    return PaperRow(path.parent.name, path.stem, arch, flags, papers, start)
