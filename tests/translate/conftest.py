"""Finished runs on miniature corpora, by the launcher."""

import json
from pathlib import Path
from typing import Any, Dict, NamedTuple

import pytest
import yaml

from capsnmt.corpora.prepared import PreparedData
from capsnmt.runs.records import RunFolder
from tests.commands import made_once, succeed
from tests.corpora.conftest import recipe_of
from tests.corpora.miniatures import lines

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
}
# updates enough for translations that differ, a backend that a model need not keep, and
# coefficients that it must; tests/frozen/golden/translate.txt is of those that agree
TRAINED: Dict[str, Dict[str, Any]] = {
    "plain": {"max-update": 60},
    "routed": {
        **{"max-update": 20, "routing-backend": "eager"},
        **{"routing-iterations": 1, "routing-coefficients": "random"},
    },
}
TRAIN = {
    **{"optimizer": "adam", "lr": 0.003, "dropout": 0, "log-interval": 50},
    **{"encoder-layers": 2, "decoder-layers": 1, "num-workers": 0},
    **{"no-epoch-checkpoints": True, "save-interval": 100, "validate-interval": 100},
}


def _make(folder: Path) -> None:
    for name, row in ROWS.items():
        finish_run(folder, name, row, TRAINED[name])


def finish_run(folder: Path, name: str, row: Row, train: Dict[str, Any]) -> RunFolder:
    """Launch a row: the folder of its run, ``NAME/seed-1``, and that of its data, ``NAME-data``."""
    corpus = folder / f"{name}-data.corpus"
    corpus.mkdir()
    source, target = row.languages.split()
    for split, numbers in SPLITS.items():
        for language in (source, target):
            (corpus / f"{split}.{language}").write_bytes(lines(numbers, language))
    recipe = recipe_of(corpus)
    recipe["files"] = {path.name: recipe["files"].get(path.name, {}) for path in corpus.iterdir()}
    recipe.update(pair=f"{source}-{target}", tokenisers=row.tokenisers)
    recipe["segmentation"] = row.segmentation
    data = {"recipe": "tiny.yaml", "source-lang": source, "target-lang": target}
    settings = {
        "dataset": "data set",
        "arch": row.arch,
        "precision": "fp32",
        "data": {**data, "test-sets": {"test": "test"}},
        "batch": {"tokens-per-update": 400, "max-tokens": 400},
        "train": {**TRAIN, **train},
        "generate": GENERATE,
        "score": {"remove-bpe": row.segmentation.get("method", "subword_nmt")},
    }
    for file, content in (("tiny", recipe), (name, settings)):
        text = yaml.safe_dump(content, sort_keys=False)
        (corpus / f"{file}.yaml").write_text(text, encoding="utf-8")
    given = ["--config", corpus / f"{name}.yaml", "--data", corpus, "--cpu", "--threads", 1]
    given += ["--prepared", folder / f"{name}-data", "--output", folder]
    succeed("capsnmt.launch", *given)
    return RunFolder(folder / name / "seed-1")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    folder = made_once(tmp_path_factory, "translated", _make)
    return {name: folder / name / "seed-1" for name in ROWS}


def data_of(run: Path) -> PreparedData:
    return PreparedData(Path(json.loads((run / "config.json").read_text("utf-8"))["data"]))


@pytest.fixture(scope="session")
def exported(runs: Dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plain run's model as fairseq's own."""

    def export(folder: Path) -> None:
        succeed("capsnmt.export", runs["plain"], "--output", folder / "transformer.pt")

    return made_once(tmp_path_factory, "exported", export) / "transformer.pt"
