"""Analyse systems one after the other and write the results."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from tqdm import tqdm

from capsnmt.analysis.base import Analysis, NotApplicableError
from capsnmt.analysis.hooks import observe
from capsnmt.analysis.loading import load_translation_model
from capsnmt.analysis.model import Options, System, choose_sentences, load_subset, to_device
from capsnmt.analysis.registry import ANALYSES
from capsnmt.cli import ConfigurationError


@dataclass(frozen=True)
class Subject:
    """What to analyse: a checkpoint and its data.

    Attributes:
        name: the name of the system on the page.
        checkpoint: the checkpoint.
        data: the folder of binarised data.
    """

    name: str
    checkpoint: Path
    data: Path


@dataclass
class Findings:
    """The finished analyses.

    Attributes:
        subset: the subset of the data.
        seed: the seed of every random choice.
        subjects: the systems, in the order of the page.
        sentences: system -> how many sentences were analysed.
        of: name of the analysis -> name of the system -> finished analysis.
        missing: name of the analysis -> name of the system -> why it has none.
        failed: system -> why it could not be analysed.
    """

    subset: str = "test"
    seed: int = 1
    subjects: Sequence[Subject] = ()
    sentences: Dict[str, int] = field(default_factory=dict)
    of: Dict[str, Dict[str, Analysis]] = field(default_factory=dict)
    missing: Dict[str, Dict[str, str]] = field(default_factory=dict)
    failed: Dict[str, str] = field(default_factory=dict)


def analyse(
    subjects: Sequence[Subject],
    *,
    subset: str = "test",
    sentences: int = 1500,
    seed: int = 1,
    max_tokens: int = 2000,
    device: str = "auto",
    only: Optional[Sequence[str]] = None,
    options: Optional[Options] = None,
) -> Findings:
    """Run the analyses on each system. A system that cannot be analysed does not stop the others.

    Args:
        subjects: the systems, in the order of the page.
        subset: the subset of the data.
        sentences: number of sentences, chosen at random.
        seed: seed of the choice, and of every random choice of an analysis.
        max_tokens: tokens of a batch on the longer side, padding included; bounds the memory.
        device: ``cpu``, ``cuda`` or ``auto``.
        only: names of analyses; all by default.
        options: settings of single analyses.

    Raises:
        ConfigurationError: none of the systems can be analysed.
    """
    findings = Findings(subset, seed, subjects)
    for subject in subjects:
        try:
            model, task = load_translation_model(subject.checkpoint, subject.data)
            dataset = load_subset(task, subset, subject.data)
            numbers = choose_sentences(dataset, model, sentences, seed, max_tokens)
            system = System(
                *(subject.name, to_device(model, device), task, dataset, numbers),
                seed=seed,
                options=options or Options(),
            )
            analyses = _applicable(system, only or list(ANALYSES), findings)
        except ConfigurationError as error:
            if len(subjects) > 1:  # otherwise the command ends with it
                print(f"error: {subject.name}: {error}", file=sys.stderr)
            findings.failed[subject.name] = str(error)
            continue
        findings.sentences[subject.name] = sum(map(len, numbers))
        for analysis in analyses:
            findings.of.setdefault(analysis.name, {})[subject.name] = analysis
    if not findings.of and findings.failed:
        name, reason = next(iter(findings.failed.items()))
        several = "none of the systems can be analysed (see above)"
        raise ConfigurationError(f"{name}: {reason}" if len(subjects) == 1 else several)
    return findings


def _applicable(system: System, names: Sequence[str], findings: Findings) -> List[Analysis]:
    """Run the analyses that apply to a system and return them; note why others do not."""
    analyses = []
    for name in names:
        try:
            analyses.append(ANALYSES[name](system))
        except NotApplicableError as reason:
            print(f"{system.name}: no {name}: {reason}", file=sys.stderr)
            findings.missing.setdefault(name, {})[system.name] = str(reason)
    total = sum(map(len, system.numbers))
    on_terminal: Dict[str, Any] = {"unit": " sentences", "mininterval": 1, "disable": None}
    with tqdm(total=total, desc=system.name, **on_terminal) as progress:
        for batch in system.batches():
            observe(system.model, batch, analyses)
            progress.update(len(batch.numbers))
    for analysis in analyses:
        analysis.finish()
        del analysis.system  # otherwise the models of all systems would stay in memory
    return analyses


def in_order(analyses: Mapping[str, Mapping[str, Analysis]]) -> List[str]:
    """Return the names of finished analyses in the order of the page."""
    return [name for name in ANALYSES if name in analyses]
