"""The operators and the modules need torch alone: ``pip install capsnmt`` is enough for them."""

from __future__ import annotations

import sys

from tests.interpreter import ran

ALL = """
import doctest, importlib, pkgutil, sys
sys.modules["fairseq"] = sys.modules["omegaconf"] = None
import capsnmt.modules, capsnmt.routing
tested = 0
for package in (capsnmt.routing, capsnmt.modules):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.startswith("capsnmt.routing.fused."):  # they need triton
            results = doctest.testmod(importlib.import_module(found.name))
            assert not results.failed, found.name
            tested += results.attempted
print(tested)
"""


def test_every_module_and_its_examples_run_without_fairseq() -> None:
    done = ran([sys.executable, "-c", ALL])
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) > 50
