"""The report's text: sections in Markdown, made from what runs left behind."""

from __future__ import annotations

import re
import shlex
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

from capsnmt.evaluation.scoring import METRICS
from capsnmt.experiment.progress import clock
from capsnmt.experiment.report_run import ReportedRun
from capsnmt.experiment.report_samples import SEED, Sample

SIGNIFICANT = 0.05
BOOTSTRAP = re.compile(r"bs:\d+\|seed:\d+\|")
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&])")

ONE_SEED = (
    "**One seed proves nothing.** Every system here was trained once. Two trainings of the same "
    "system that differ in the seed alone often differ as much, and the test tells only whether "
    "other sentences would give the same order, not whether other trainings would. Whatever came "
    "out is reported, whichever system it favours."
)


def text(value: object) -> str:
    """Text as Markdown that shows it unchanged, also in a table.

    >>> text("a|b <i> *c*\\n")
    'a\\\\|b \\\\<i\\\\> \\\\*c\\\\*'
    """
    return SPECIAL.sub(r"\\\1", " ".join(str(value).split()))


def table(header: Sequence[str], rows: Iterable[Sequence[object]], right: int = 0) -> str:
    """A Markdown table; the columns from number ``right`` on (0: none) are right-aligned."""
    rules = [":--" if not right or number < right else "--:" for number in range(len(header))]
    cells = [list(header), rules, *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def code(content: str, language: str = "") -> str:
    """A block of code; its fence is longer than any in it."""
    longest = max(map(len, re.findall("`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{content.rstrip()}\n{fence}"


def summary(runs: Sequence[ReportedRun], names: Sequence[str]) -> Iterator[str]:
    """The result in sentences, and how far to trust it."""
    for run, name in zip(runs, names):
        for test_set, scores in run.scores.items():
            if scores.get("baseline") not in (None, run.row):
                yield _comparison(run, name, test_set, scores)
    updates = {run.curve.updates for run in runs}
    if len(updates) > 1:
        yield (
            "**Not the same budget:** the systems were trained for "
            f"{' and '.join(f'{number:,}' for number in sorted(updates))} updates."
        )
    if len({(run.row, run.seed) for run in runs}) == len({run.row for run in runs}):
        yield ONE_SEED


def _comparison(run: ReportedRun, name: str, test_set: str, scores: Mapping[str, Any]) -> str:
    baseline = next(each for each in scores["systems"] if each["name"] == scores["baseline"])
    one, other = run.system(test_set)["bleu"]["score"], baseline["bleu"]["score"]
    difference = round(one, 2) - round(other, 2)
    told = f"{abs(difference):.2f} {'above' if difference > 0 else 'below'}"
    p_value = p_of(run, test_set)
    sentence = (
        f"{text(test_set)}: {text(name)} scores {one:.2f} BLEU, "
        f"{told if difference else 'the same as'} {text(scores['baseline'])} ({other:.2f})"
    )
    if p_value is None:
        return f"{sentence}; the difference was not tested."
    verdict = "significant" if p_value < SIGNIFICANT else "not significant"
    return f"{sentence}; p = {p_value:.3f}, {verdict} at {SIGNIFICANT}."


def p_of(run: ReportedRun, test_set: str, metric: str = "bleu") -> Optional[float]:
    """The p-value of a run against its baseline; ``None`` where it was not tested."""
    return (run.system(test_set).get("significance") or {}).get(metric, {}).get("p_value")


def scores(runs: Sequence[ReportedRun], names: Sequence[str], test_set: str) -> Iterator[str]:
    """One test set: every system by every metric, with signatures and the test."""
    documents = [run.scores[test_set] for run in runs]
    segments = documents[0]["reference"]["segments"]
    yield f"### {text(test_set)}: {segments:,} sentences"
    header = ["system", *METRICS.values(), "p (BLEU)", "p (chrF2)", "p (TER)"]
    yield table(
        header,
        (
            [
                text(name),
                *(f"{run.system(test_set)[metric]['score']:.2f}" for metric in METRICS),
                *(_p(p_of(run, test_set, metric)) for metric in METRICS),
            ]
            for run, name in zip(runs, names)
        ),
        right=1,
    )
    for metric, label in METRICS.items():
        # The test's part of a signature says nothing about the score, and the baseline has none.
        signatures = {BOOTSTRAP.sub("", run.system(test_set)[metric]["signature"]) for run in runs}
        yield f"- {label}: " + " and ".join(f"`{each}`" for each in sorted(signatures))
    tested = next((each for each in documents if each.get("baseline") is not None), None)
    if tested is not None:
        yield (
            f"p: paired bootstrap resampling (Koehn 2004) against {text(tested['baseline'])}, "
            f"{tested['resamples']:,} resamples, seed {tested['seed']}. TER: less is better."
        )


def _p(p_value: Optional[float]) -> str:
    return "–" if p_value is None else f"{p_value:.3f}"


def training(runs: Sequence[ReportedRun], names: Sequence[str], picture: str) -> Iterator[str]:
    """What was trained, for how long, and the learning curves."""
    yield table(
        ["system", "architecture", "seed", "parameters", "updates", "time", "valid loss"],
        (
            [
                text(name),
                f"`{run.architecture}`",
                str(run.seed),
                f"{run.parameters:,}",
                f"{run.curve.updates:,}",
                _clock(run.curve.training_seconds),
                _last(run.curve.valid),
            ]
            for run, name in zip(runs, names)
        ),
        right=2,
    )
    yield (
        "Time is wall-clock time (h:mm:ss) of the updates the model has, validation and saving "
        "included. Loss is label-smoothed, in bits per subword; the last one is shown."
    )
    yield f"![Training and validation loss over updates]({picture})"
    for run, name in zip(runs, names):
        if not run.curve.valid:
            yield f"{text(name)} was never validated: its curve is that of the training alone."
        if run.curve.unreadable:
            yield (
                f"{text(name)}: {run.curve.unreadable} unreadable line(s) of `train.log` were left "
                f"out; a training that was killed leaves such."
            )


def _clock(seconds: Optional[float]) -> str:
    return "–" if seconds is None else clock(seconds)


def _last(points: Mapping[int, float]) -> str:
    return f"{points[max(points)]:.3f}" if points else "–"


def samples(
    drawn: Sequence[Sample], names: Sequence[str], languages: Sequence[str]
) -> Iterator[str]:
    """Sample translations, the systems side by side."""
    yield (
        f"Not chosen: {len(drawn)} sentences drawn at random with the fixed seed {SEED}, by their "
        f"number in the test set (from 0)."
    )
    source, target = languages
    yield table(
        ["no.", f"source ({source})", f"reference ({target})", *map(text, names)],
        (
            [
                str(each.number),
                *map(text, (each.source, each.reference)),
                *(text(line) or "*(empty)*" for line in each.translations),
            ]
            for each in drawn
        ),
    )


def data(manifest: Mapping[str, Any], languages: Sequence[str]) -> Iterator[str]:
    """What the corpus is, how many pairs, and the command that makes it."""
    if manifest.get("description"):
        yield f"{text(manifest['description'])}."
    sides = dict(_lines_of(manifest, languages[0]))
    yield table(
        ["text", "sentence pairs"],
        ([f"`{name}`", f"{lines:,}"] for name, lines in sides.items()),
        right=1,
    )
    if manifest.get("command"):
        yield code(manifest["command"], "bash")


def _lines_of(manifest: Mapping[str, Any], language: str) -> Iterator[Any]:
    """Raw splits, and the training text that was kept, each with its lines."""
    for step in manifest.get("steps", {}).values():
        for name, file in step.get("files", {}).items():
            if re.fullmatch(rf"(raw|clean)/.+\.{re.escape(language)}", name) and "lines" in file:
                yield name.rsplit(".", 1)[0], file["lines"]


def commands(runs: Sequence[ReportedRun], names: Sequence[str]) -> Iterator[str]:
    """Every command of every run, to be copied."""
    for run, name in zip(runs, names):
        yield f"### {text(name)}"
        if run.config.get("command"):
            typed = ["python", "-m", "capsnmt.experiment", *run.config["command"][1:]]
            yield "One command does it all:"
            yield code(shlex.join(map(str, typed)), "bash")
            yield "It runs:"
        yield code((run.folder / "commands.sh").read_text(encoding="utf-8"), "bash")


def versions(
    runs: Sequence[ReportedRun], names: Sequence[str], machine: Mapping[str, str]
) -> Iterator[str]:
    """What the runs were made with, and the machine of this report."""
    found = [_versions(run) for run in runs]
    packages = sorted({package for each in found for package in each})
    columns = [text(name) for name in names]
    if all(each == found[0] for each in found):
        found, columns = found[:1], ["version"]
    yield table(
        ["package", *columns],
        ([package, *(text(each.get(package, "–")) for each in found)] for package in packages),
    )
    devices = sorted({f"{run.config['device']} ({run.config['device-name']})" for run in runs})
    yield f"Trained on: {text('; '.join(devices))}."
    told = "; ".join(f"{key} {value}" for key, value in machine.items())
    yield f"This report was made on: {text(told)}."


def _versions(run: ReportedRun) -> Dict[str, Any]:
    evaluated = next(iter(run.scores.values())).get("versions") or {}
    return {**{k: v for k, v in evaluated.items() if v}, **run.config["versions"]}


def document(title: str, sections: Mapping[str, Iterable[str]]) -> str:
    """The whole page; a section without a heading comes first."""
    parts: List[str] = [f"# {text(title)}"]
    for heading, paragraphs in sections.items():
        if heading:
            parts.append(f"## {heading}")
        parts += paragraphs
    return "\n\n".join(parts) + "\n"
