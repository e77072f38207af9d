"""The C++ kernels: where their shortcuts end, and how they are built."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from capsnmt import routing
from capsnmt.fast.cpp import build
from capsnmt.routing import backend
from tests.interpreter import ran
from tests.routing.operators import OPERATORS, kernels_of, random, run_with_gradient

OBSTACLE = backend.backend_obstacle("cpp", "cpu")
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=f"NOT TESTED: backend 'cpp' {OBSTACLE}")
COVERED = [name for name in OPERATORS if name.split(",")[0] in kernels_of("cpp")]
EM = "em_routing, activation of pairs"


def cpp(name, votes, T=3):
    return run_with_gradient(OPERATORS[name], votes, T, backend="cpp")


def eager(name, votes, T=3):
    return run_with_gradient(OPERATORS[name], votes, T, backend="eager")


@pytest.mark.parametrize("name", COVERED)
def test_auto_takes_them_whatever_the_size_in_training_and_evaluation(name):
    votes = random(2, 3, 4, 2)
    results, gradients = run_with_gradient(OPERATORS[name], votes, 3)
    assert torch.equal(results, cpp(name, votes)[0])
    assert torch.equal(gradients, cpp(name, votes)[1])
    with torch.no_grad():
        assert torch.equal(OPERATORS[name](votes, 3), results)
    # and they are not the eager operator under another name
    several = random(7, 8, 33, 1)
    assert not torch.equal(cpp(name, several)[1], eager(name, several)[1])


def test_a_tensor_elsewhere_is_an_error_and_its_address_is_not_read():
    elsewhere = torch.zeros(4, device="meta")
    with pytest.raises(ValueError, match="beta_a is on meta"):
        routing.em_routing(random(2, 3, 4, 2), elsewhere, elsewhere, backend="cpp")


@pytest.mark.parametrize("name", [EM, "dynamic_routing, masked", "simple_routing"])
def test_one_and_two_threads_give_the_same_bits(name):
    votes, threads = random(100, 4, 33, 1), torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(cpp(name, votes))
            beta = random(33).requires_grad_()
            capsules = routing.em_routing(votes, beta, beta, backend="cpp")
            results[-1] += torch.autograd.grad(capsules.square().sum(), beta)
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


@pytest.mark.parametrize("name", [EM, "em_routing", "dynamic_routing", "simple_routing"])
@pytest.mark.parametrize("strange", [float("nan"), float("inf"), 1e20])
def test_a_vote_that_is_not_finite_spoils_what_it_spoils_eagerly(strange, name):
    votes = random(3, 4, 20, 1)
    clean = cpp(name, votes)
    votes[1, 2, 3] = strange
    for found, expected, before in zip(cpp(name, votes), eager(name, votes), clean):
        assert torch.equal(found.isfinite(), expected.isfinite())
        assert torch.equal(found[::2], before[::2])


def test_the_rounding_of_a_mean_is_not_multiplied_by_its_large_gradient():
    """One input has almost all the mass: X = V - mu is the rounding of mu, its gradient 1e5."""
    votes, activation = random(3, 4, 128, 1, seed=3), (2 * random(3, 4, 128, seed=103)).sigmoid()
    beta = torch.linspace(-0.5, 0.5, 128)

    def gradient(name, dtype):
        leaf = votes.to(dtype).requires_grad_()
        costs = beta.to(dtype), 0.5 * (0.5 - beta).to(dtype)
        capsules = routing.em_routing(leaf, *costs, 5, activation.to(dtype), backend=name)
        weights = torch.linspace(-1, 1, capsules.numel(), dtype=dtype).view_as(capsules)
        return torch.autograd.grad((capsules * weights).sum(), leaf)[0].double()

    exact = gradient("eager", torch.float64)
    plain = (gradient("eager", torch.float32) - exact).norm()
    assert (gradient("cpp", torch.float32) - exact).norm() <= 4 * plain


@pytest.mark.parametrize("name", ["em_routing", "dynamic_routing"])
def test_second_derivatives_are_those_of_the_eager_operator(name):
    second = []
    for chosen in ("cpp", "eager"):
        votes = random(2, 3, 4, 2).requires_grad_()
        result = OPERATORS[name](votes, 2, backend=chosen)
        (first,) = torch.autograd.grad(result.square().sum(), votes, create_graph=True)
        second += torch.autograd.grad(first.square().sum(), votes)
    torch.testing.assert_close(*second, rtol=1e-3, atol=1e-4)


def test_a_build_exports_its_functions_and_no_other_symbol():
    """Of equal symbols in two builds a process keeps one, whose instructions it may lack."""
    listing = ["nm", "-D", "--defined-only", build.library()._name]
    symbols = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in symbols.splitlines()}
    kernels = ("em", "agreement", "inverted")
    assert names == {f"{kernel}_{way}ward" for kernel in kernels for way in ("for", "back")}


def test_a_compiler_that_is_fast_by_itself_is_told_not_to_be():
    """As Intel's icpx: its exponential would be wrong by up to 40 %, and NaN a number."""
    fast = [*backend.compiler(), "-ffast-math", *build.FLAGS]
    macros = build.run([*fast, "-dM", "-E", "-x", "c++", os.devnull]).splitlines()
    assert "#define __FINITE_MATH_ONLY__ 0" in macros
    assert not any("__FAST_MATH__" in macro for macro in macros)


@pytest.mark.nightly  # two builds, while a build is tested with every commit
@pytest.mark.parametrize("without", ["-mno-avx512f", "-mno-avx"])
def test_other_instructions_are_another_build_with_the_same_results(without, monkeypatch, tmp_path):
    names = ("em_routing", EM, "dynamic_routing, masked", "simple_routing")
    cases = [(name, random(3, 4, 33, D)) for name in names for D in (1, 3)]
    cases += [(name, random(3, 4, 33, 1).bfloat16()) for name in names]
    usual = Path(build.library()._name)
    expected = [eager(*case) for case in cases]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, without))
    build.library.cache_clear()
    try:
        for case, one in zip(cases, expected):
            found = run_with_gradient(OPERATORS[case[0]], case[1], 3, backend="cpp")
            torch.testing.assert_close(found, one, rtol=2e-2, atol=2e-3)
        fresh = Path(build.library()._name)
    finally:
        build.library.cache_clear()
    assert fresh.parent == tmp_path / "capsnmt"
    assert fresh.name != usual.name


ROUTE = """
import torch
from capsnmt.routing import simple_routing
votes = torch.ones(2, 3, 4, 1)
print(torch.equal(simple_routing(votes), simple_routing(votes, backend="cpp")))
"""


@pytest.mark.nightly  # two builds, while a build is tested with every commit
def test_processes_may_build_at_the_same_time(tmp_path):
    with ThreadPoolExecutor(2) as threads:
        build = [sys.executable, "-c", ROUTE]
        for done in threads.map(lambda _: ran(build, XDG_CACHE_HOME=str(tmp_path)), range(2)):
            assert (done.stdout, done.stderr) == ("True\n", "")
    assert [path.suffix for path in (tmp_path / "capsnmt").iterdir()] == [".so"]


def test_what_another_process_has_built_meanwhile_stays(monkeypatch, tmp_path):
    """Another node may run it: an NFS server deletes at once what is replaced from elsewhere."""
    usual, original = Path(build.library()._name), build.run
    theirs = tmp_path / "capsnmt" / usual.name

    def run(command):
        if "-o" not in command:
            return original(command)
        Path(command[-1]).write_bytes(b"ours")
        return shutil.copy(usual, theirs)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "run", run)
    build.library.cache_clear()
    try:
        assert Path(build.library()._name) == theirs
    finally:
        build.library.cache_clear()


MISSING = "needs a C++ compiler (g++, clang++ or CXX), and none is on the PATH"


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"PATH": "/dev", "CXX": ""}, MISSING),
        ({"CXX": "false"}, "cannot be built: false failed (no message)"),
        ({"CXX": r"printf \374"}, "No such file or directory"),  # says it in another encoding
        ({"XDG_CACHE_HOME": "/dev/null"}, "Not a directory"),
    ],
    ids=str,
)
def test_without_a_build_auto_warns_once_and_cpp_is_one_line(variables, reason, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    cached = build.library, build.obstacle, build.is_built
    for function in cached:
        function.cache_clear()
    votes = random(2, 3, 4, 1)
    try:
        message = f".*{re.escape(reason)}.*; "
        with pytest.raises(ValueError, match=f"^routing backend 'cpp' {message}use auto or eager$"):
            routing.simple_routing(votes, backend="cpp")
        slower = f"^routing by C\\+\\+ {message}it runs more slowly$"
        with pytest.warns(UserWarning, match=slower) as caught:
            results = [routing.simple_routing(votes) for _ in range(2)]
        assert len(caught) == 1
        assert torch.equal(*results)
    finally:
        for function in cached:
            function.cache_clear()
