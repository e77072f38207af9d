"""Finished runs on miniature corpora, prepared, trained and translated by the real commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, NamedTuple

import pytest
import yaml

from capsnmt import records
from capsnmt.checkpoints.load import count_parameters
from capsnmt.configurations.schema import Settings
from capsnmt.corpora.__main__ import main as prepare
from capsnmt.corpora.prepared import PreparedData
from capsnmt.files import sha256
from capsnmt.runs.records import RunConfig, RunFolder
from tests.commands import ON_CPU, made_once, succeed
from tests.corpora.conftest import binarise_by_fork, recipe_of
from tests.corpora.miniatures import lines
from tests.report.finished_runs import write_log, write_records
from tests.support import PLUGIN

SPLITS = {"train": range(0, 120), "val": range(120, 126), "test": range(200, 212)}
GENERATE = {"beam": 3, "lenpen": 0.6, "max-len-b": 20}


class Row(NamedTuple):
    """A miniature configuration."""

    arch: str
    languages: str
    tokenisers: Dict[str, str]
    segmentation: Dict[str, Any]


# both segmentations, one and two models, text with and without spaces
ROWS = {
    "plain": Row("capsnmt_transformer_tiny", "en de", {"en": "moses", "de": "moses"}, {"size": 60}),
    "routed": Row(
        "transformer_em_routing_tiny",
        "en zh",
        {"en": "moses", "zh": "characters"},
        {"size": 60, "method": "sentencepiece", "joint": False},
    ),
    "random": Row(
        "transformer_em_routing_tiny", "en de", {"en": "moses", "de": "moses"}, {"size": 60}
    ),
}
# updates enough for translations that differ, and a backend that a model need not keep
TRAINED = {
    "plain": (60,),
    "routed": (20, "--routing-backend", "eager"),
    "random": (20, "--routing-iterations", "1", "--routing-coefficients", "random"),
}


def _make(folder: Path) -> None:
    for name, row in ROWS.items():
        finish_run(folder, name, row, *TRAINED[name])


def finish_run(folder: Path, name: str, row: Row, updates: int, *extra: object) -> RunFolder:
    """Write the folder of a finished run, ``NAME/seed-1``, and that of its data, ``NAME-data``."""
    data = _prepare(folder / f"{name}-data", row)
    run = RunFolder(folder / name / "seed-1")
    source, target = row.languages.split()
    flags = ["--batch-size", "16", "--max-update", updates, "--lr", "0.003", "--user-dir", PLUGIN]
    flags += ["--optimizer", "adam", "--save-dir", run.checkpoints, "--no-epoch-checkpoints"]
    flags += ["--disable-validation", "--save-interval", "100", "--dropout", "0"]
    flags += ["--encoder-layers", "2", "--decoder-layers", "1", "--log-interval", "50", *extra]
    succeed("fairseq_cli.train", data.binarised, "--arch", row.arch, *flags, *ON_CPU)
    generation = [word for key, value in GENERATE.items() for word in (f"--{key}", value)]
    generated = succeed(
        *("fairseq_cli.generate", data.binarised, "--path", run.last_checkpoint),
        *("--user-dir", PLUGIN, "--batch-size", "4", *generation, *ON_CPU),
    )
    run.generated("test").write_text(generated, encoding="utf-8")
    dictionaries = map(data.dictionary, (source, target))
    settings = {
        "dataset": "data set",
        "data": {"source-lang": source, "target-lang": target, "test-sets": {"test": "test"}},
        "arch": row.arch,
        "generate": GENERATE,
    }
    write_records(
        run,
        RunConfig(
            row=name,
            seed=1,
            settings=records.build(settings, Settings, name),
            data=str(data.folder),
        ),
        vocabulary={path.name: sha256(path) for path in dictionaries},
        parameters=count_parameters(run.last_checkpoint),
    )
    write_log(run.train_log)
    run.scores.write_text("{}", encoding="utf-8")
    return run


def _prepare(folder: Path, row: Row) -> PreparedData:
    """Prepare a miniature corpus with the real command."""
    corpus = folder.with_suffix(".corpus")
    corpus.mkdir()
    for split, numbers in SPLITS.items():
        for language in row.languages.split():
            (corpus / f"{split}.{language}").write_bytes(lines(numbers, language))
    recipe = recipe_of(corpus)
    recipe["files"] = {path.name: recipe["files"].get(path.name, {}) for path in corpus.iterdir()}
    recipe.update(pair="-".join(row.languages.split()), tokenisers=row.tokenisers)
    recipe["segmentation"] = row.segmentation
    path = corpus / "tiny.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    arguments = [path, "--output", folder, "--local", corpus, "--workers", "1"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("capsnmt.corpora.binarise.binarise", binarise_by_fork)
        status = prepare([str(argument) for argument in arguments])
        assert status == 0  # python -O drops what an assertion computes
    return PreparedData(folder)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """The folders of the runs by row."""
    folder = made_once(tmp_path_factory, "translated", _make)
    return {name: folder / name / "seed-1" for name in ROWS}


def data_of(run: Path) -> PreparedData:
    """Return the prepared data of a run."""
    return PreparedData(Path(json.loads((run / "config.json").read_text("utf-8"))["data"]))
