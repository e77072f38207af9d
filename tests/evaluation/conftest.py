"""Real outputs of translation systems, and made ones."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Dict, List

import pytest

from tests.evaluation.outputs import write_outputs
from tests.real_data import real_data


@pytest.fixture(scope="session")
def ted() -> Dict[str, List[str]]:
    """TED Slk-Eng, 2,445 raw segments: ``reference`` and the outputs ``sys1`` and ``sys2``.

    ``source`` and everything that ends in ``.tokens`` is tokenised.
    """
    folder = real_data("significance")
    texts = {"source": read_gzip(folder / "ted.orig.slk.gz")}
    for key, name in {"reference": "ref", "sys1": "sys1", "sys2": "sys2"}.items():
        texts[key] = read_gzip(folder / f"ted.{name}.detok.eng.gz")
        texts[f"{key}.tokens"] = read_gzip(folder / f"ted.{name}.eng.gz")
    return texts


def read_gzip(path: Path) -> List[str]:
    """The lines of a gzip file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip() for line in file]


@pytest.fixture
def files(tmp_path: Path) -> Dict[str, str]:
    """A perfect system, one that is half wrong, and a reference."""
    return write_outputs(tmp_path)
