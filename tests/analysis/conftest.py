"""The analysis page of three systems with hostile names, which its tests read and open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from capsnmt.analysis.agreement import Agreement
from capsnmt.analysis.analyse import Findings, Subject
from capsnmt.analysis.observation import observe
from capsnmt.analysis.output import write
from tests.analysis.kept_sentences import EVIL, keep
from tests.analysis.passes import make_batch
from tests.support import build

ROUTED = 'em <i>&"$1$'
NAMES = ("baseline", ROUTED, "capsule")
OTHER = "other subwords"


@pytest.fixture(scope="package")
def findings() -> Findings:
    """Three systems with different routings; their names and subwords are hostile."""
    batch = make_batch(left_pad=True)
    twice = ("--routing-iterations", "2")
    models = {
        "baseline": build("capsnmt_transformer"),
        ROUTED: build("transformer_em_routing", "--layer-aggregation", "em-routing", *twice),
        "capsule": build("capsule_transformer", *twice),
    }
    sentences = {name: keep(name, model, [batch]) for name, model in models.items()}
    # the same sentences in other subwords
    resegmented = replace(make_batch(left_pad=False, first=5), numbers=batch.numbers)
    sentences[OTHER] = keep(OTHER, models["baseline"], [resegmented])
    # its maps have no mean and no figure, which would take a second
    agreement = {"capsule": Agreement(sentences["capsule"].system)}
    observe(models["capsule"], batch, [agreement["capsule"]])
    return Findings(
        subjects=[
            Subject(name, Path("model.pt"), Path("data")) for name in (*sentences, "foreign")
        ],
        sentences=dict.fromkeys(sentences, 3),
        of={"agreement": agreement, "sentences": sentences},
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
