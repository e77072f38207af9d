"""Check that everything is right on a GPU: kernels, tests, trainings and translations.

A reference is fp64, or the same computation on the CPU in fp32.
"""

import argparse
import itertools
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Sequence

import torch
from torch import Tensor

from capsnmt.cli import ConfigurationError, quiet
from capsnmt.machine import CORES
from capsnmt.translate.load import load_model
from scripts import harness
from scripts.harness import DTYPES, machine, record
from scripts.workload import PRECISIONS, Setup, Workload, build, systems, trainer_of
from tests.routing.operators import OPERATORS

# votes of the papers' systems: tokens, I, N, D
SIZES = {
    "tiny": (2048, 4, 128, 1),
    "base": (1024, 8, 512, 1),
    "big": (256, 16, 1024, 1),
    "layers": (1024, 6, 512, 1),
    "wide": (512, 6, 64, 8),
    "odd": (512, 5, 30, 3),
    "sentences": (256, 8, 29, 27),
    "long sentences": (64, 8, 64, 64),
}
KERNELS = {
    "em_routing": ("tiny", "base", "big", "wide", "odd"),
    "em_routing, activation of pairs": ("layers", "odd"),
    "em_routing, activation of inputs": ("base",),
    "simple_routing": ("tiny", "base", "big", "odd"),
    "inverted_routing": ("base", "big", "wide", "odd"),
    "dynamic_routing": ("layers", "wide", "odd"),
    "dynamic_routing, masked": ("layers", "odd"),
    "vertical_routing, masked": ("sentences", "long sentences"),
}
SMALL = ("odd", "sentences")
RESOLUTION = 2e-5  # of fp32: a GPU approximates exp
UPDATES = 20
# precision -> how far the first and the last losses may be from those of fp32 on the CPU
FAR = {"fp32": (1e-4, 2e-3), "fp16": (5e-3, 3e-2), "amp": (5e-3, 3e-2), "bf16": (5e-3, 3e-2)}
TRAINED = Path("results/multi30k_lowercase/baseline/seed-3/averaged.pt")
TESTS = ("tests/fast/test_kernels.py", "tests/fast/test_adam.py", "tests/criterions")
NO_DROPOUT = "--dropout 0 --attention-dropout 0 --activation-dropout 0"


def kernel(name: str, device: str) -> None:
    """Compare values and gradients with fp64: at most twice the error of eager torch."""
    for size in KERNELS[name]:
        if device == "cuda" or size in SMALL:
            for dtype in DTYPES if device == "cuda" else ("fp32", "bf16"):
                check_kernel(name, size, dtype, device)


def check_kernel(name: str, size: str, dtype: str, device: str) -> None:
    """Compare the kernel for votes of a size and precision."""
    tokens, *shape = SIZES[size]
    tokens = tokens if device == "cuda" else 3
    generator = torch.Generator().manual_seed(1)
    votes = torch.randn(tokens, *shape, generator=generator) * shape[-1] ** -0.25
    votes = votes.to(device, DTYPES[dtype])

    def run(backend: str, votes: Tensor) -> List[Tensor]:
        leaf = votes.detach().requires_grad_()
        with torch.device(device):
            result = OPERATORS[name](leaf, 3, backend=backend)
        noise = torch.randn(result.shape, generator=torch.Generator().manual_seed(2))
        cotangent = noise.to(device, DTYPES[dtype]).to(result.dtype)
        return [result.detach(), *torch.autograd.grad(result, leaf, cotangent)]

    exact = run("eager", votes.double())

    def errors(found: Sequence[Tensor]) -> List[float]:
        return [float((x.double() - e).norm() / (e.norm() + 1e-30)) for x, e in zip(found, exact)]

    if device == "cuda":  # fresh memory is NaN: what a kernel does not write shows
        torch.full((2**26,), float("nan"), device=device)
    ours = "triton" if device == "cuda" else "cpp"
    found = run(ours, votes)
    least = RESOLUTION if dtype == "fp32" else torch.finfo(DTYPES[dtype]).eps
    near = [e <= 2 * b + least for e, b in zip(errors(found), errors(run("eager", votes)))]
    same = all(map(torch.equal, found, run(ours, votes)))
    if not (all(near) and same):
        record(ok=False, size=size, dtype=dtype, errors=errors(found), same_bits=same)


def trained(name: str, device: str) -> None:
    """Compare the losses of the first updates with those of fp32 on the CPU."""
    flags, setups = systems()[name], [setup_of("cpu", "fp32")]
    setups += [setup_of(device, dtype) for dtype in PRECISIONS if device == "cuda"] or setups
    reference: List[float] = []
    for setup in setups:
        words = f"{flags} {NO_DROPOUT}"
        own = f"{words} {PRECISIONS[setup.dtype]}"
        try:
            step = Workload(setup).training_step(trainer_of(build(own, setup), words, setup))
            logs = [step() for _ in range(UPDATES if device == "cuda" else 2)]
        except ConfigurationError as error:  # fp16 of what overflows it, bf16 on a GPU without
            record(dtype=setup.dtype, refused=str(error))
            continue
        losses = [float(log["loss"]) for log in logs if log is not None]  # fp16 may skip some
        reference = reference or losses
        first = abs(losses[0] / reference[0] - 1)
        last = abs(statistics.mean(losses[-5:]) / statistics.mean(reference[-5:]) - 1)
        most = FAR[setup.dtype]
        if not (first <= most[0] and last <= most[1]):  # NaN is not
            record(ok=False, dtype=setup.dtype, losses=losses[:1] + losses[-1:], off=[first, last])


def setup_of(device: str, dtype: str) -> Setup:
    """Return batches of a thousand words, as the CPU must train on them, too."""
    return Setup(device, dtype, 1024, length=24, sentences=1, beam=1, vocabulary=2000, seed=1)


def translated(_: str, device: str) -> None:
    """Translate with a trained model as on the CPU: sentences of the words that it knows best."""
    best = {}
    for where in ("cpu", device):
        with quiet():
            model, _, task = load_model(TRAINED, TRAINED.parents[2] / "data/bin", OVERRIDES)
            generator = task.build_generator([model], argparse.Namespace(beam=5, max_len_b=40))
        model.to(where).eval()
        words = torch.randint(4, 304, (64, 12), generator=torch.Generator().manual_seed(1))
        words[:, -1] = task.source_dictionary.eos()
        lengths = torch.full((64,), 12)
        sample = {"net_input": {"src_tokens": words.to(where), "src_lengths": lengths.to(where)}}
        with torch.no_grad():
            found = generator.to(where).generate([model], sample)
        best[where] = [hypotheses[0]["tokens"].tolist() for hypotheses in found]
    equal = statistics.mean(a == b for a, b in zip(best["cpu"], best[device]))
    record(ok=equal >= 0.95, equal=round(equal, 3))  # near ties may go either way


OVERRIDES = {"autocast": "none"}


def tested(_: str, device: str) -> None:
    """Run the tests that need a GPU."""
    workers = str(min(6, CORES))
    words = [*TESTS, "-q", "-m", "cuda", "-n", workers, "-p", "no:cacheprovider"]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], check=False)
    record(ok=done.returncode == 0, pytest=done.returncode)


def described(_: str, device: str) -> None:
    """Say what the machine is."""
    record(machine=machine(device))


KINDS = {
    "machine": described,
    "kernel": kernel,
    "tests": tested,
    "training": trained,
    "translations": translated,
}


def parts(device: str) -> Dict[str, float]:
    """Return the parts and their limits in seconds, the shortest and most telling first."""
    names = [*(f"kernel {name}" for name in KERNELS), "tests", "translations"]
    names += [f"training {name}" for name in systems()]
    if device == "cpu":
        names = ["kernel em_routing", "kernel vertical_routing, masked", "translations"]
        names += ["training transformer_em_routing_tiny"]
    return dict(zip(["machine", *names], itertools.repeat(240.0)))


def main() -> None:
    """Check all parts, or one."""
    harness.run_parts(__doc__, KINDS, parts, 5, lambda device: min(12, CORES))


if __name__ == "__main__":
    harness.run_script(main)
