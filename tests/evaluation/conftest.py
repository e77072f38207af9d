"""Real outputs of translation systems, made ones, and the command."""

import gzip
import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import pytest

from capsnmt.evaluation.__main__ import main
from tests.commands import is_refusal
from tests.evaluation.outputs import write_outputs
from tests.real_data import real_data

Evaluate = Callable[..., Any]
Refuse = Callable[..., None]


@pytest.fixture(scope="session")
def ted() -> Dict[str, List[str]]:
    """2,445 segments of TED Slk-Eng; ``source`` and what ends in ``.tokens`` is tokenised."""
    folder = real_data("significance")
    texts = {"source": read_gzip(folder / "ted.orig.slk.gz")}
    for key, name in {"reference": "ref", "sys1": "sys1", "sys2": "sys2"}.items():
        texts[key] = read_gzip(folder / f"ted.{name}.detok.eng.gz")
        texts[f"{key}.tokens"] = read_gzip(folder / f"ted.{name}.eng.gz")
    return texts


def read_gzip(path: Path) -> List[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip() for line in file]


@pytest.fixture
def files(tmp_path: Path) -> Dict[str, str]:
    """A perfect system, one that is half wrong, and a reference."""
    return write_outputs(tmp_path)


@pytest.fixture
def evaluate(tmp_path: Path) -> Evaluate:
    """Run the command; return its JSON."""

    def run(*arguments: object) -> Any:
        target = tmp_path / "evaluation.json"
        assert main([*map(str, arguments), "--json", str(target)]) == 0
        return json.loads(target.read_text("utf-8"))

    return run


@pytest.fixture
def refuse(refused: Callable[..., str]) -> Refuse:
    """``refuse(ARGUMENTS, WORD, ...)``: the command is refused in one line with the words."""

    def refuse(given: Sequence[object], *words: str) -> None:
        is_refusal(2, f"{refused(main, *given)}\n", *words)

    return refuse


def outputs(document: Any) -> Dict[str, Any]:
    """Name of each system with one output -> the output."""
    return {system["name"]: system["outputs"][0] for system in document["systems"]}


def scores(document: Any, metric: str = "bleu") -> Dict[str, float]:
    """Name of each system with one output -> its score."""
    return {name: output["scores"][metric]["score"] for name, output in outputs(document).items()}
