"""The rows of the papers' tables, read from their configurations.

A configuration with the key ``paper`` is a row; one without it holds settings that rows extend.
"""

from __future__ import annotations

import functools
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import AbstractSet, Any, Mapping, Optional

from capsnmt.cli import ConfigurationError
from capsnmt.files import bundled_folder
from capsnmt.launch.config import HYDRA, Experiment, load
from capsnmt.launch.flags import argv

PAPERS = {
    "li2019": "Li et al. 2019",
    "dou2019": "Dou et al. 2019",
    "ampomah2020": "Ampomah et al. 2020",
    "li2021": "Li et al. 2021",
    "duan2020": "Duan et al. 2020",
    "comparison": "Comparison systems",
}

PLAIN = "capsnmt_transformer"  # the architecture with every mechanism off
SUFFIXES = {"base": "", "big": "_big", "iwslt": "_iwslt", "tiny": "_tiny"}


@dataclass(frozen=True)
class Count:
    """A number of parameters as printed: a total, or a difference where it starts with a plus."""

    text: str

    @property
    def is_difference(self) -> bool:
        """Whether the paper prints the difference from the baseline."""
        return self.text.startswith("+")

    @property
    def value(self) -> float:
        """The number itself."""
        return float(self.text[:-1]) * self._unit

    @property
    def rounding(self) -> float:
        """Half a unit of the last digit."""
        decimals = len(self.text[:-1].partition(".")[2])
        return 0.5 * 10**-decimals * self._unit

    @property
    def _unit(self) -> float:
        return {"K": 1e3, "M": 1e6}[self.text[-1]]


@dataclass(frozen=True)
class Printed:
    """What one paper prints about a row; ``None`` where it prints nothing.

    Attributes:
        table: where it is printed.
        name: what the table calls the row.
        baseline: the row of the same dataset to compare with; ``None`` for a baseline itself.
        bleu: BLEU on the test set.
        validation_bleu: BLEU on the validation set.
        parameters: all parameters, or those added to the baseline.
        training_speed: steps per second.
        decoding_speed: sentences per second.
        note: why our exact count of parameters differs by more than the paper's rounding.
    """

    table: str
    name: str
    baseline: Optional[str] = None
    bleu: Optional[float] = None
    validation_bleu: Optional[float] = None
    parameters: Optional[Count] = None
    training_speed: Optional[float] = None
    decoding_speed: Optional[float] = None
    note: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a paper's table.

    Attributes:
        dataset: the folder of its configuration.
        name: the name of its configuration.
        arch: its architecture.
        flags: the flags of ``fairseq-train`` that it sets on top of its paper's settings.
        papers: what each paper prints about it, the paper that introduced it first.
        init_from: the row that it starts from, if there is one.
    """

    dataset: str
    name: str
    arch: str
    flags: Mapping[str, Any]
    papers: Mapping[str, Printed]
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
    def printed(self) -> Printed:
        """What that paper prints about the row."""
        return self.papers[self.paper]

    @property
    def size(self) -> str:
        """The size of the model, a key of :data:`SUFFIXES`."""
        return {PLAIN + suffix: size for size, suffix in SUFFIXES.items()}[self.arch]

    def command(self, size: Optional[str] = None) -> str:
        """Return the flags of ``fairseq-train`` for the row's model and loss.

        Args:
            size: a key of :data:`SUFFIXES` to replace the row's own.
        """
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
    """What a paper prints about a row and its baseline, compared.

    Attributes:
        parameters: the number of parameters that the row adds.
        rounding: the largest error of that number by the paper's rounding.
        text: the numbers as printed.
    """

    parameters: float
    rounding: float
    text: str


def baseline_of(row: Row, rows: Mapping[str, Row]) -> Row:
    """Return the row that ``row`` is compared with; a baseline is compared with itself."""
    name = row.printed.baseline
    return rows[f"{row.dataset}/{name}"] if name else row


def printed_difference(row: Row, rows: Mapping[str, Row]) -> Optional[Difference]:
    """Return the parameters that the row adds to its baseline, as its paper prints them.

    A printed difference is taken as it is; two printed totals are subtracted.
    """
    count = row.printed.parameters
    if count is None or row.printed.baseline is None:
        return None
    if count.is_difference:
        return Difference(count.value, count.rounding, count.text)
    total = baseline_of(row, rows).papers[row.paper].parameters
    if total is None or total.is_difference:
        return None
    added, rounding = count.value - total.value, count.rounding + total.rounding
    return Difference(added, rounding, f"{total.text} to {count.text}")


def relative_speed(row: Row, rows: Mapping[str, Row], phase: str) -> Optional[float]:
    """Return the printed speed of a row divided by its baseline's.

    Args:
        row: the row.
        rows: all rows.
        phase: ``training`` or ``decoding``.
    """
    baseline = baseline_of(row, rows)
    ours = getattr(row.printed, f"{phase}_speed")
    theirs = getattr(baseline.papers[row.paper], f"{phase}_speed")
    return ours / theirs if ours and theirs and baseline is not row else None


@functools.cache
def load_rows(folder: Optional[Path] = None) -> Mapping[str, Row]:
    """Return every row by its key.

    Args:
        folder: configurations; by default those that come with this package.

    Raises:
        ConfigurationError: a configuration is wrong or its printed values are incomplete.
    """
    paths = sorted((folder or bundled_folder("configs")).glob("*/*.yaml"))
    loaded = {path: load(path) for path in paths if path.parent.name != HYDRA}
    printed = {path: experiment for path, experiment in loaded.items() if experiment.paper}
    files = {str(path) for path in printed}
    found = {path: _row(path, experiment, files) for path, experiment in printed.items()}
    rows = {row.key: row for row in found.values()}
    for path, row in found.items():
        _check_baselines(path, row, rows)
    return rows


def _row(path: Path, experiment: Experiment, files: AbstractSet[str]) -> Row:
    """Return the row of a configuration; ``files`` are those of all rows."""
    # A flag that another row sets, such as a number of heads, is part of this row, too.
    flags = {
        name: value
        for name, value in (experiment["train"] or {}).items()
        if experiment.where(f"train.{name}") in files
    }
    papers = {paper: _printed(path, paper, values) for paper, values in experiment.paper.items()}
    start = experiment["init-from"]
    return Row(path.parent.name, path.stem, experiment["arch"], flags, papers, start)


def _printed(path: Path, paper: str, values: Mapping[str, Any]) -> Printed:
    for key in ("table", "name"):
        if key not in values:
            raise ConfigurationError(f"{path}: paper.{paper}.{key} is not set: add it")
    fields = {key.replace("-", "_"): value for key, value in values.items()}
    if "parameters" in fields:
        fields["parameters"] = Count(fields["parameters"])
    return Printed(**fields)


def _check_baselines(path: Path, row: Row, rows: Mapping[str, Row]) -> None:
    for paper, printed in row.papers.items():
        if printed.baseline is None:
            continue
        baseline = rows.get(f"{row.dataset}/{printed.baseline}")
        if baseline is None or paper not in baseline.papers or baseline.papers[paper].baseline:
            raise ConfigurationError(
                f"{path}: paper.{paper}.baseline: {printed.baseline} is not a baseline of {paper} "
                f"in {row.dataset}: name a row that has paper.{paper} without a baseline"
            )
