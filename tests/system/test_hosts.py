"""A checkpoint trained on one host gives the same translations on the other."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.commands import ON_CPU, hypotheses, scores, succeed, train
from tests.interpreter import ran
from tests.support import PLUGIN, REPO

# it needs both environments, and is the same from either
pytestmark = [pytest.mark.system, pytest.mark.one_host]


def other_host() -> str:
    """Return the interpreter of the other host's environment, made by scripts/test.sh."""
    environments = (REPO / ".venv", REPO / ".venv-stock")
    others = [
        environment / "bin" / "python"
        for environment in environments
        if (environment / "installed").exists() and environment != Path(sys.prefix)
    ]
    if len(others) != 1:
        pytest.skip(
            "NOT TESTED across hosts: run scripts/test.sh, then scripts/test.sh --host stock, "
            "which needs both environments"
        )
    return str(others[0])


# At night: the formats are those of the pinned hosts, and each command of the other one is a fresh
# interpreter.
@pytest.mark.nightly
@pytest.mark.parametrize("trainer", ["this", "other"])
def test_a_checkpoint_of_one_host_generates_the_same_on_the_other(
    trainer: str, corpus: Path, tmp_path: Path
) -> None:
    hosts = {"this": sys.executable, "other": other_host()}
    train(corpus / "bin", tmp_path, "transformer_em_routing_tiny", 4, python=hosts[trainer])
    this, other = (
        succeed(
            "fairseq_cli.generate",
            *(corpus / "bin", "--user-dir", PLUGIN, "--path", tmp_path / "checkpoint_last.pt"),
            *ON_CPU,
            python=generator,
        )
        for generator in hosts.values()
    )
    assert len(hypotheses(this)) == 8
    assert hypotheses(this) == hypotheses(other)
    assert scores(this) == pytest.approx(scores(other), abs=2e-4)


@pytest.mark.parametrize(
    ("fake", "message"),
    [
        (None, "fairseq is not installed: .*pip install"),
        ("raise ValueError('mutable default')", "cannot be imported on Python .*mutable default"),
        ("__version__ = '0.9.0'", "fairseq 0.9.0 is not supported: .*pip install"),
    ],
    ids=["missing", "broken", "old"],
)
def test_a_host_that_cannot_work_is_one_line_with_the_fix(
    fake: str, message: str, tmp_path: Path
) -> None:
    """In a fresh interpreter, where the fake hides the real fairseq."""
    hide = "importlib.util.find_spec = lambda name: None;" if fake is None else ""
    (tmp_path / "fairseq.py").write_text(fake or "", "utf-8")
    program = f"import importlib.util; {hide} import capsnmt.plugin"
    done = ran([sys.executable, "-c", program], REPO, PYTHONPATH=f"{tmp_path}{os.pathsep}{REPO}")
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith("ImportError: capsnmt: ")
    assert re.search(message, last)
