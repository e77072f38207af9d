"""Analyse models one after the other, and write CSV files, figures, arrays and the page."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type

import msgspec

from capsnmt.analysis.ablation import TEST, HeadAblation, LayerAblation, LayerBleu
from capsnmt.analysis.agreement import Agreement
from capsnmt.analysis.base import Analysis, Cell, NotApplicableError, observe
from capsnmt.analysis.heads import AttentionStatistics, Disagreement, HeadTSNE
from capsnmt.analysis.layers import Anisotropy, LayerWeights, Similarity
from capsnmt.analysis.model import AnalysedModel, NamedCheckpoint, Scope, load
from capsnmt.analysis.plots import Figure
from capsnmt.analysis.sentences import Sentences
from capsnmt.cli import say
from capsnmt.files import sha256
from capsnmt.pages.page import Table, csv_text, write_page

HERE = Path(__file__).parent
DIGITS = 6
UNKNOWN = "<unk>"
ABSENT = "", 0  # of a sentence that another model reads
LONGEST_TABLE = 400  # rows; the CSV file holds all
# in the order of the page
ANALYSES: Dict[str, Type[Analysis]] = {
    analysis.name: analysis
    for analysis in (
        AttentionStatistics,
        Agreement,
        Disagreement,
        HeadTSNE,
        LayerWeights,
        Similarity,
        Anisotropy,
        HeadAblation,
        LayerAblation,
        LayerBleu,
        Sentences,  # last: its section is followed by the browser
    )
}


@dataclass(frozen=True)
class Findings:
    """The finished analyses."""

    checkpoints: Sequence[NamedCheckpoint]  # in the order of the page
    scope: Scope
    sentences: Dict[str, int] = field(default_factory=dict)  # model -> how many were read
    of: Dict[str, Dict[str, Analysis]] = field(default_factory=dict)  # analysis -> model -> it
    missing: Dict[str, Dict[str, str]] = field(default_factory=dict)  # the same -> why it has none


def analyse(
    checkpoints: Sequence[NamedCheckpoint], scope: Scope, only: Sequence[str] = tuple(ANALYSES)
) -> Findings:
    """Run analyses on each model; a checkpoint that cannot be loaded ends it before the first."""
    texts = {each.name: load(each, scope).texts for each in checkpoints[1:]}
    findings = Findings(checkpoints, scope)
    for checkpoint in checkpoints:
        model = load(checkpoint, scope)
        if checkpoint is checkpoints[0]:
            _compare(model, texts)
        _analyse(model, only, findings)
    return findings


def _compare(model: AnalysedModel, texts: Mapping[str, Mapping[int, Tuple[str, int]]]) -> None:
    """Warn of models that read other sentences than the first: the page shows them side by side.

    So are the same sentences in other subwords: distances, entropies and losses are by token.
    Sentences with unknown words, which are others for each dictionary, are not compared.
    """
    first = model.texts
    for name, text in texts.items():
        every = {**text, **first}
        pairs = [(first.get(x, ABSENT), text.get(x, ABSENT)) for x in every]
        pairs = [(one, other) for one, other in pairs if UNKNOWN not in one[0] + other[0]]
        sentences = sum(one[0] != other[0] for one, other in pairs)
        others = sentences or sum(one != other for one, other in pairs)
        if others:
            say(
                f"warning: {name}: {others:,} of {len(every):,} sentences are "
                f"{'others than' if sentences else 'in other subwords than'} those of "
                f"{model.name}; their numbers are not comparable"
            )


def _analyse(model: AnalysedModel, names: Sequence[str], findings: Findings) -> None:
    """Add the analyses that apply to a model, and why others do not."""
    analyses: List[Analysis] = []
    for name, analysis in ANALYSES.items():
        try:
            if name in names:
                analyses.append(analysis(model))
        except NotApplicableError as reason:
            say(f"{model.name}: no {name}: {reason}")
            findings.missing.setdefault(name, {})[model.name] = str(reason)
    for batch in model.batches():
        observe(model.model, batch, analyses)
    for finished in analyses:
        finished.finish(model)
        findings.of.setdefault(finished.name, {})[model.name] = finished
    findings.sentences[model.name] = len(model.chosen)


def write(findings: Findings, output: Path, command: str) -> Path:
    """Write all files and return the page."""
    tables = {name: table(ANALYSES[name], models) for name, models in findings.of.items()}
    figures = {name: figures_of(ANALYSES[name], findings) for name in findings.of}
    files = {f"{name}.csv": csv_text(rows) for name, rows in tables.items()}
    extra = script = ""
    if Sentences.name in findings.of:
        files["sentences.json"] = data = sentences_json(findings.of[Sentences.name])
        data = data.replace("<", "\\u003c")  # so that nothing ends the element
        extra = (HERE / "browser.html").read_text("utf-8").replace("DATA", data)
        script = (HERE / "browser.js").read_text("utf-8")
    systems = [
        [x.name, f"{findings.sentences[x.name]:,}", str(x.path), str(x.data), sha256(x.path)[:12]]
        for x in findings.checkpoints
    ]
    context = {
        "findings": findings,
        "test": TEST.in_words,
        "figures": figures,
        "tables": {name: page_table(rows) for name, rows in tables.items()},
        "command": command,
        "systems": Table(["system", "sentences", "checkpoint", "data", "SHA-256"], systems),
    }
    drawn = {f"figures/{each.name}": each.draw for of in figures.values() for each in of}
    left = [output / f"{name}.csv" for name in ANALYSES if name not in findings.of]
    left += [x for x in sorted(output.glob("figures/*")) if f"figures/{x.stem}" not in drawn]
    if found := [path.name for path in left if path.exists()]:
        say(f"warning: {len(found)} file(s) in {output} are of an earlier analysis: {found[0]}, ..")
    return write_page(HERE / "analysis.md.j2", output, context, drawn, files, extra, script)


def figures_of(analysis: Type[Analysis], findings: Findings) -> List[Figure]:
    """Return the figures of an analysis; every model of the page has a colour of its own."""
    models: Mapping[str, Any] = findings.of[analysis.name]
    rows: Dict[str, List[Dict[str, Cell]]] = {each.name: [] for each in findings.checkpoints}
    for name, of_model in models.items():
        rows[name] = [dict(zip(analysis.columns, row)) for row in of_model.rows()]
    return [*(plot.figure(rows) for plot in analysis.plots), *analysis.figures(models)]


def table(analysis: Type[Analysis], models: Mapping[str, Analysis]) -> List[Sequence[Any]]:
    """Return header and rows of the CSV file of an analysis."""
    rows = [(name, *map(cell, row)) for name, each in models.items() for row in each.rows()]
    return [("system", *analysis.columns), *rows]


def cell(value: Cell) -> Any:
    """Return a cell of a CSV file; empty where there is no number."""
    if isinstance(value, float):
        return "" if value != value else round(value, DIGITS)
    return "" if value is None else value


def page_table(rows: Sequence[Sequence[Any]]) -> Optional[Table]:
    """Return the rows as a table of the page, unless they are too many."""
    if not 1 < len(rows) <= LONGEST_TABLE:
        return None
    header, *body = rows
    texts = [any(isinstance(each, str) and each for each in column) for column in zip(*body)]
    return Table(header, body, len(texts) - texts[::-1].index(True))


def sentences_json(models: Mapping[str, Any]) -> str:
    """Return the kept sentences as JSON: of each, what each model has, or null."""
    kept = [analysis.kept for analysis in models.values()]
    sentences = [
        {"number": number, "systems": [of_model.get(number) for of_model in kept]}
        for number in sorted(set().union(*kept))
    ]
    return msgspec.json.encode({"systems": [*models], "sentences": sentences}).decode()
