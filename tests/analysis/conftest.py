"""The analysis page of systems with hostile names and subwords, which its tests read and open."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from capsnmt.analysis.agreement import Agreement
from capsnmt.analysis.analyse import Findings, Subject
from capsnmt.analysis.model import Options, System
from capsnmt.analysis.output import write
from capsnmt.analysis.sentences import Sentences
from tests.analysis.systems import analysed, system_of
from tests.support import FIRST, TASK, build

EVIL = "</script><img src=http:evil.example onerror=alert(1)>"
SUBWORDS = (EVIL, "<!--<script>", "$x$", "漢字", "&amp;", '"', "__proto__", "it's")
ROUTED = 'em <i>&"$1$'
NAMES = ("baseline", ROUTED, "capsule")
OTHER = "other subwords"


def hostile(model: Any, name: str, **settings: Any) -> System:
    """Return a system whose dictionary has subwords that could break a page."""
    dictionary = copy.deepcopy(TASK.source_dictionary)
    dictionary.symbols[FIRST : FIRST + len(SUBWORDS)] = SUBWORDS
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    system = system_of(model, name=name, options=Options(browser_sentences=3), **settings)
    return replace(system, task=task)


@pytest.fixture(scope="package")
def findings() -> Findings:
    """Three systems with different routings, and one that reads the sentences otherwise."""
    twice = ("--routing-iterations", "2")
    models = {
        "baseline": build("capsnmt_transformer"),
        ROUTED: build("transformer_em_routing", "--layer-aggregation", "em-routing", *twice),
        "capsule": build("capsule_transformer", *twice),
    }
    systems = {name: hostile(model, name) for name, model in models.items()}
    systems[OTHER] = hostile(models["baseline"], OTHER, left_pad=False, seed=5)
    sentences = {name: analysed(Sentences, system) for name, system in systems.items()}
    return Findings(
        subjects=[
            Subject(name, Path("model.pt"), Path("data")) for name in (*sentences, "foreign")
        ],
        sentences=dict.fromkeys(sentences, 3),
        of={
            # its maps have no mean and no figure, which would take a second
            "agreement": {"capsule": analysed(Agreement, systems["capsule"])},
            "sentences": sentences,
        },
        missing={"agreement": {"baseline": "it routes nothing"}},
        failed={"foreign": f"no such file {EVIL}"},
    )


@pytest.fixture(scope="package")
def folder(findings: Findings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("analysis")
    paths = write(findings, output, command=f"capsnmt-analyse {EVIL}")
    assert paths[-1] == output / "analysis.html"
    assert sorted(path for path in output.rglob("*") if path.is_file()) == sorted(paths)
    return output


@pytest.fixture(scope="package")
def content(folder: Path) -> str:
    return (folder / "analysis.html").read_text("utf-8")
