"""Measure what a GPU makes of our systems: trainings against stock, kernels, decoding."""

import argparse
import functools
from dataclasses import dataclass
from typing import Any, Dict, List, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

from capsnmt.files import own_version
from scripts import benchmark, benchmark_kernels, harness
from scripts.benchmark_systems import System
from scripts.harness import machine, record
from scripts.paper_rows import PLAIN, SUFFIXES
from scripts.workload import FUSED, Setup, Workload, build, forget_peak, stock_flags

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
COUNTED = 2  # updates
TRITON, COMPILE = "--routing-backend triton", "--compile"
# name -> flags after those of the size
SYSTEMS = {
    "ours": f"--arch {PLAIN}{{}}",
    "ours, fused": f"--arch {PLAIN}{{}} {FUSED}",
    "EM heads": f"--arch transformer_em_routing{{}} {FUSED} {TRITON}",
    "EM heads, auto": f"--arch transformer_em_routing{{}} {FUSED}",
    "EM layers": f"--arch {PLAIN}{{}} --layer-aggregation em-routing {FUSED} {TRITON}",
    "routed layers": f"--arch transformer_dlcl_routing{{}} {FUSED} {TRITON}",
    "multi-layer attention": f"--arch transformer_mlmha{{}} {FUSED}",
    "capsule attention": f"--arch capsule_transformer{{}} {FUSED} {TRITON}",
    "ours, compiled": f"--arch {PLAIN}{{}} {FUSED} {COMPILE}",
    "EM heads, compiled": f"--arch transformer_em_routing{{}} {FUSED} {TRITON} {COMPILE}",
}
FIRST = ("ours", "ours, fused", "EM heads", "EM heads, auto")


@dataclass(frozen=True)
class Training:
    """A system that trains beside stock, in a size, a precision and with batches of tokens."""

    system: str
    size: str = "base"
    dtype: str = "fp16"
    tokens: int = 8192

    @property
    def name(self) -> str:
        """What it is called in the report."""
        return f"{self.system}, {self.size}, {self.dtype}, {self.tokens} tokens"


TRAININGS = [
    *(Training(system) for system in FIRST),
    *(Training(system, tokens=32_768) for system in FIRST[1:]),
    *(Training(system, dtype="bf16") for system in FIRST[1:]),
    *(Training(system, size="big") for system in FIRST[1:]),
    *(Training(system) for system in SYSTEMS if system not in FIRST),
    *(Training(system, dtype="amp") for system in FIRST[:2]),
]


def setup_of(device: str, dtype: str, tokens: int) -> Setup:
    """Return batches as those of WMT14; small ones on a CPU."""
    if device == "cpu":
        return Setup(device, "fp32", 64, length=8, sentences=2, beam=2, vocabulary=100, seed=1)
    return Setup(device, dtype, tokens, length=32, sentences=64, beam=4, vocabulary=37_000, seed=1)


def system_of(name: str, size: str, device: str) -> System:
    """Return a system and the stock model of its size, which is tiny on a CPU."""
    flags = SYSTEMS[name]
    if device == "cpu":
        size, flags = "tiny", flags.replace(TRITON, "")
    return System(name, flags.format(SUFFIXES[size]), stock_flags(size))


def training(name: str, device: str) -> None:
    """Measure pairs of updates of stock and ours, the memory of each, and what each asks."""
    one = next(each for each in TRAININGS if each.name == name)
    setup = setup_of(device, one.dtype, one.tokens)
    system = system_of(one.system, one.size, device)
    gpu = device == "cuda"
    warmup, pairs = (8, 20) if gpu else (1, 2)
    found = benchmark.compare(system, "train", setup, pairs, warmup, floor=False)
    speeds = {who: round(speed) for who, speed in found.tokens_per_second.items()}
    record(tokens_per_second=speeds, ratio=str(found.ours))
    for who, flags in (("stock", system.stock), ("ours", system.flags)) if gpu else ():
        record(who=who, **asked(flags, setup))


def asked(flags: str, setup: Setup) -> Dict[str, Any]:
    """Return the launches, the waits and the busy milliseconds of an update, and the peak GiB."""
    forget_peak()
    step = Workload(setup).phase("train", build(flags, setup), flags)
    for _ in range(4):
        step()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(COUNTED):
            step()
        torch.cuda.synchronize()
    events = profiler.events() or []
    on_gpu = work_of_gpu(events)
    kernels = [event for event in on_gpu if not event.name.startswith("Mem")]
    busy = sum(event.time_range.elapsed_us() for event in on_gpu)
    return {
        "launches": len(kernels) // COUNTED,
        # the last wait is ours
        "waits": (sum(event.name in WAITS for event in events) - 1) // COUNTED,
        "busy_ms": round(busy / COUNTED / 1e3, 2),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }


def work_of_gpu(events: Sequence[Any]) -> List[Any]:
    """Return what a GPU did; a span that fairseq names, as "forward", has its kernels once more."""
    on_gpu = (e for e in events if e.device_type == torch.autograd.DeviceType.CUDA)
    return [e for e in on_gpu if not getattr(e, "is_user_annotation", False)]


def kernels(title: str, device: str) -> None:
    """Measure an operator on votes of more than the cache holds, as multiples of the floor."""
    shape = next(each for each in benchmark_kernels.SHAPES if each.name == title)
    args = argparse.Namespace(device=device, dtype="fp32", iterations=3, tokens=None)
    speed = benchmark_kernels.bandwidth(device, 2**30 if device == "cuda" else 2**22)
    backends: Sequence[str] = benchmark_kernels.BACKENDS[device]
    if device == "cpu":
        args.tokens, backends = 16, backends[::2]  # compiling takes a minute
    for dtype in ("bf16", "fp32") if device == "cuda" else ("fp32",):
        args.dtype = dtype
        for cells in benchmark_kernels.measure(shape, args, speed, backends):
            record(dtype=dtype, **dict(zip(("pass", "floor", *backends), cells[1:])))


def decoding(name: str, device: str) -> None:
    """Measure pairs of searches of stock and ours."""
    setup, system = setup_of(device, "fp16", 4096), system_of(name, "base", device)
    with torch.no_grad():
        pairs = 5 if device == "cuda" else 1
        found = benchmark.compare(system, "decode", setup, pairs, 1, floor=False)
    record(ratio=str(found.ours), seconds={k: round(v, 3) for k, v in found.seconds.items()})


def described(_: str, device: str) -> None:
    """Say what the machine is, and its two ceilings."""
    size = 8192 if device == "cuda" else 256
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a = torch.randn(size, size, device=device, dtype=dtype)
    product = benchmark_kernels.seconds(functools.partial(torch.mm, a, a), device)
    speed = benchmark_kernels.bandwidth(device, 2**30 if device == "cuda" else 2**22)
    record(
        machine=machine(device),
        version=own_version(),
        copy_gb_s=round(speed / 1e9),
        product_tflop_s=round(2 * size**3 / product / 1e12, 1),
    )


KINDS = {"machine": described, "training": training, "kernels": kernels, "decoding": decoding}


def parts(device: str) -> Dict[str, float]:
    """Return the parts and their limits in seconds, the most valuable first."""
    trainings = [f"training {each.name}" for each in TRAININGS]
    operators = [f"kernels {shape.name}" for shape in benchmark_kernels.SHAPES]
    decodings = [f"decoding {name}" for name in ("ours", "EM heads, auto", "routed layers")]
    names = [*trainings[:7], *operators, *trainings[7:14], *decodings, *trainings[14:]]
    if device == "cpu":
        names = [trainings[2], operators[0], decodings[0]]
    return dict.fromkeys(["machine", *names], 300.0)


def report(records: Sequence[Dict[str, Any]]) -> str:
    """Return what was measured as Markdown: a section a kind of part."""
    sections: Dict[str, List[str]] = {}
    for each in records:
        kind, _, name = each["part"].partition(" ")
        cells = [f"{k} {v}" for k, v in each.items() if k not in ("part", "of", "ok", "took")]
        if cells:
            lines = sections.setdefault(kind, [harness.head((kind, "measured"))])
            lines.append(harness.line((name or kind, "; ".join(cells))))
    texts = [f"## {kind.capitalize()}\n\n" + "\n".join(rows) for kind, rows in sections.items()]
    said = (
        "Written by `scripts/benchmark_gpu.sh`. Ratios are ours / stock in tokens per second, the "
        "median of alternating pairs with the extremes; of kernels, nanoseconds a vote and the "
        "multiple of the floor."
    )
    return "\n\n".join(["# Speed on a GPU", said, *texts]) + "\n"


def main() -> None:
    """Measure all parts that are not measured yet, or one."""
    harness.run_parts(__doc__, KINDS, parts, 60, lambda device: 1, report)


if __name__ == "__main__":
    harness.run_script(main)
