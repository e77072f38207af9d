"""What importing loads, and that fairseq finds every registered name by every route."""

import importlib.util
import json
import pkgutil
import sys
from typing import Any, List

import pytest

from capsnmt.models import PRESETS, SIZES
from capsnmt.sentences.classifier import SENTENCE_PRESETS
from tests.commands import succeed
from tests.interpreter import COMMANDS, ran
from tests.support import PLUGIN, REPO

HOST = ("torch", "fairseq")
HEAVY = (*HOST, "numpy", "scipy", "sacrebleu", "matplotlib", "jinja2")
EXPECTED = {
    "architectures": sorted([*(p + s for p in PRESETS for s in SIZES), *SENTENCE_PRESETS]),
    "criterions": [
        "chunked_label_smoothed_cross_entropy",
        "label_smoothed_cross_entropy_with_disagreement",
        "sentence_classification",
    ],
    "optimizers": ["fused_adam"],
    "tasks": ["logical_inference", "probing"],
    "tokenizers": ["capsnmt"],
}


def fresh(program: str, *arguments: str) -> Any:
    """Run a program in a fresh interpreter; return the JSON in the last line of its output."""
    done = ran([sys.executable, "-c", program, *arguments], REPO)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def modules_of(package: str) -> List[str]:
    """The names of a package and of every module below it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    below = pkgutil.walk_packages(spec.submodule_search_locations, f"{package}.")
    return [package, *(module.name for module in below if "__main__" not in module.name)]


def test_importing_the_package_imports_nothing_else() -> None:
    program = (
        "import json, os, sys; before = set(sys.modules); import capsnmt;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert fresh(program) == ["capsnmt"]


def test_the_plugin_and_an_optimizer_leave_out_the_compiler_and_print_nothing() -> None:
    """It takes seconds to import; and fairseq's modules let the root logger print."""
    program = (
        "import logging, sys; import capsnmt.plugin, torch; p = torch.nn.Parameter(torch.ones(1));"
        "capsnmt.plugin.adam.Adam([p], lr=1.0, betas=(0.9, 0.9), eps=0.0, weight_decay=0.0).step();"
        "print('torch._dynamo' in sys.modules, logging.root.level, logging.root.handlers)"
    )
    done = ran([sys.executable, "-W", "ignore", "-c", program], REPO)
    assert (done.stdout, done.stderr) == ("False 30 []\n", "")  # 30 is WARNING


@pytest.mark.one_host  # here and below: no host is loaded
def test_data_and_scores_need_neither_torch_nor_fairseq() -> None:
    """Every module is imported where an import of either raises an ImportError."""
    program = (
        f"import importlib, json, sys; host = {HOST}; sys.modules.update(dict.fromkeys(host));"
        "[importlib.import_module(name) for name in sys.argv[1:]];"
        "print(json.dumps([m for m in sys.modules if m.startswith(host)]))"
    )
    modules = (*modules_of("capsnmt.evaluation"), *modules_of("capsnmt.corpora"))
    assert fresh(program, *modules) == list(HOST)


@pytest.mark.one_host
def test_help_loads_no_library() -> None:
    program = (
        "import contextlib, json, pkgutil, sys; entries, sys.argv[1:] = sys.argv[1:], ['--help']\n"
        "for entry in entries:\n"
        "    with contextlib.suppress(SystemExit): pkgutil.resolve_name(entry)()\n"
        f"print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    )
    assert fresh(program, *COMMANDS.values()) == []


@pytest.mark.system
@pytest.mark.parametrize("route", ["twice", "spawned", "hydra"])
def test_fairseq_finds_every_name(route: str) -> None:
    output = succeed("tests.registrations", route, "capsnmt" if route == "spawned" else PLUGIN)
    assert json.loads(output.splitlines()[-1]) == EXPECTED


ALL = """
import doctest, importlib, pkgutil, sys
sys.modules["fairseq"] = sys.modules["omegaconf"] = None
import capsnmt.modules, capsnmt.routing
tested = 0
for package in (capsnmt.routing, capsnmt.modules):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        results = doctest.testmod(importlib.import_module(found.name))
        assert not results.failed, found.name
        tested += results.attempted
print(tested)
"""


def test_every_module_and_its_examples_run_without_fairseq() -> None:
    done = ran([sys.executable, "-c", ALL])
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) > 50
