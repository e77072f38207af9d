"""The analysis page of models with hostile names and subwords, which its tests read and open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from capsnmt.analysis.analyse import Findings, analyse
from capsnmt.analysis.page import write
from tests.analysis.small_models import SETTINGS, precise, write_checkpoint, write_data

EVIL = "</script><img src=http:evil.example onerror=alert(1)>"
SUBWORDS = (EVIL, "<!--<script>", "$x$", "漢字", "&amp;", '"', "__proto__", "it's")
ROUTED = 'em <i>&"$1$'
NAMES = ("baseline", ROUTED, "capsule")
OTHER = "other subwords"
TWICE = ("--routing-iterations", "2")
MODELS = {
    "baseline": ("capsnmt_transformer",),
    ROUTED: ("transformer_em_routing", "--layer-aggregation", "em-routing", *TWICE),
    "capsule": ("capsule_transformer", *TWICE),
    OTHER: ("capsnmt_transformer",),
}


@pytest.fixture(scope="package")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Three models with different routings, and one that reads other sentences."""
    folder = tmp_path_factory.mktemp("hostile")
    data = write_data(folder / "data", symbols=SUBWORDS)
    other = write_data(folder / "other", seed=5, symbols=SUBWORDS)
    checkpoints = [
        replace(
            write_checkpoint(
                *(precise(*flags), folder / f"{place}.pt", other if name == OTHER else data),
                *(flags, name != OTHER),
            ),
            name=name,
        )
        for place, (name, flags) in enumerate(MODELS.items())
    ]
    settings = replace(SETTINGS, browser_sentences=3)
    return analyse(checkpoints, settings, ["agreement", "sentences"])


@pytest.fixture(scope="package")
def folder(findings: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("analysis")
    assert write(findings, output, f"capsnmt-analyse {EVIL}") == output / "analysis.html"
    return output


@pytest.fixture(scope="package")
def content(folder: Path) -> str:
    return (folder / "analysis.html").read_text("utf-8")
