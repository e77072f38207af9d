#!/usr/bin/env python3
"""Speed and memory of our systems beside stock fairseq's Transformer, alternating in one process.

Every repeat times stock and ours on the same batch, one right after the other, so that what else
the machine does falls on both; a table's ratio is the median over the repeats of
``stock time / our time`` (1 = as fast as stock, below 1 = slower), its spread their extremes.

    scripts/benchmark.py                                  # li2019's rows, beside the paper's ratios
    scripts/benchmark.py --rows "EM, enc-self" --size big --device cuda --dtype fp16
    scripts/benchmark.py --system "T = 1: --arch transformer_em_routing --routing-iterations 1"

The *floor* is the same model with the routing iterations replaced by the plain mean of the votes:
the price of the networks that make the votes. What lies between floor and row is routing itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import platform
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence

import fairseq.models
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator

import capsnmt
from capsnmt.arguments import OneLineParser
from capsnmt.models import SIZES as DIMENSIONS
from capsnmt.models.transformer import learned_parameters
from capsnmt.modules.head_aggregation import HeadAggregation

PHASES = ("train", "forward", "decode")
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SIZES = {"base": "", "big": "_big", "iwslt": "_iwslt", "tiny": "_tiny"}


@dataclass
class Row:
    """A system: its flags (``{size}`` completes the architecture) and the paper's ratios."""

    flags: str
    paper_train: Optional[float] = None
    paper_decode: Optional[float] = None


def _em(attentions: str, layers: str = "all") -> str:
    chosen = "--arch capsnmt_transformer{size} --head-aggregation em" + (
        f" --head-aggregation-attention {attentions}"
    )
    return chosen + ("" if layers == "all" else f" --head-aggregation-encoder-layers {layers}")


# Li et al. 2019, Tables 2 and 3: steps and sentences per second over their baseline's.
ROWS: Dict[str, Row] = {
    "switches off": Row("--arch capsnmt_transformer{size}"),
    "simple, enc-self": Row(_em("enc-self").replace(" em ", " simple "), 0.64, 0.99),
    "EM, enc-self": Row(_em("enc-self"), 0.63, 0.99),
    "EM, enc-dec": Row(_em("enc-dec"), 0.63, 0.72),
    "EM, dec-self": Row(_em("dec-self"), 0.63, 0.72),
    "EM, enc-self + enc-dec": Row(_em("enc-self,enc-dec"), 0.45, 0.72),
    "EM, all three": Row(_em("enc-self,enc-dec,dec-self"), 0.34, 0.53),
    "EM, enc-self, layers 4-6": Row(_em("enc-self", "4-6"), 0.80),
    "EM, enc-self, layers 1,2 (effective)": Row(_em("enc-self", "1,2"), 0.87),
    "EM, enc-self, layer 6": Row(_em("enc-self", "6"), 0.98),
}


def build(flags: str, args: argparse.Namespace) -> torch.nn.Module:
    """A model by its command-line flags, on the device and in the precision of the benchmark."""
    torch.manual_seed(args.seed)
    words = [
        *("data", "--user-dir", str(Path(capsnmt.__file__).parent), "--task", "translation"),
        *("--share-all-embeddings", *shlex.split(flags)),
    ]
    settings = options.parse_args_and_arch(options.get_training_parser(), words)
    model = fairseq.models.build_model(settings, task(args.vocabulary))
    return model.to(device=args.device, dtype=DTYPES[args.dtype])


def task(vocabulary: int) -> Any:
    """One dictionary of the given size for both sides."""
    dictionary = Dictionary()
    for word in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{word}")
    return SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)


def mean_of_votes(model: torch.nn.Module) -> torch.nn.Module:
    """Replace every routing by the plain mean of its votes."""
    for module in model.modules():
        if isinstance(module, HeadAggregation):
            module.route = lambda votes: votes.mean(-3)  # type: ignore[method-assign]
    return model


def has_routing(model: torch.nn.Module) -> bool:
    """Whether the model routes anything, so that it has a floor."""
    return any(isinstance(module, HeadAggregation) for module in model.modules())


class Workload:
    """One batch, and what a phase does with it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        generator = torch.Generator().manual_seed(args.seed)
        shape = (max(1, args.tokens // args.length), args.length)
        words = torch.randint(4, args.vocabulary, (3, *shape), generator=generator)
        self.source, self.previous, self.target = words.to(args.device)
        self.lengths = torch.full((shape[0],), args.length, device=args.device)
        few = max(1, args.sentences)
        self.sample = {
            "net_input": {"src_tokens": self.source[:few], "src_lengths": self.lengths[:few]}
        }
        self.dictionary = task(args.vocabulary).target_dictionary

    def phase(self, name: str, model: torch.nn.Module) -> Callable[[], Any]:
        """A function that runs the phase once on the model."""
        if name == "train":
            model.train()
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)

            def step() -> None:
                logits = self.forward(model)
                loss = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1).float(), self.target.flatten(), label_smoothing=0.1
                )
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

            return step
        model.eval()
        if name == "forward":
            return torch.no_grad()(lambda: self.forward(model))
        steps = self.args.length  # every hypothesis has this length, whatever the model says
        generator = SequenceGenerator(
            [model], self.dictionary, beam_size=self.args.beam, max_len_b=steps, min_len=steps
        ).to(self.args.device)
        return lambda: generator.generate([model], self.sample)

    def forward(self, model: torch.nn.Module) -> torch.Tensor:
        """Teacher-forced logits of the batch."""
        return model(self.source, self.lengths, self.previous)[0]


def seconds(run: Callable[[], Any], device: str) -> float:
    """Wall time of one run, the device's queue empty before and after."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


@dataclass
class Ratio:
    """Median and extremes over the repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Ratio:
        """Summarise the repeats."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def compare(flags: str, phase: str, args: argparse.Namespace) -> Dict[str, Any]:
    """Alternate stock, ours and (where there is routing) the floor on one phase."""
    workload = Workload(args)
    ours = build(flags, args)
    systems = {"stock": build(stock_flags(args), args), "ours": ours}
    if has_routing(ours) and not args.no_floor:
        systems["floor"] = mean_of_votes(build(flags, args))
    runs = {name: workload.phase(phase, model) for name, model in systems.items()}
    for run in runs.values():
        for _ in range(args.warmup):
            run()
    times: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(args.repeats):
        for name, run in runs.items():
            times[name].append(seconds(run, args.device))
    decoded = workload.sample["net_input"]["src_tokens"]
    tokens = (decoded if phase == "decode" else workload.source).numel()
    result: Dict[str, Any] = {
        name: Ratio.of([s / o for s, o in zip(times["stock"], times[name])])
        for name in runs
        if name != "stock"
    }
    result["seconds"] = {name: statistics.median(values) for name, values in times.items()}
    result["tokens_per_second"] = {name: tokens / s for name, s in result["seconds"].items()}
    return result


def stock_flags(args: argparse.Namespace) -> str:
    """fairseq's own Transformer with the dimensions of our size."""
    dimensions = DIMENSIONS[SIZES[args.size]]
    flags = (f"--{name.replace('_', '-')} {value}" for name, value in dimensions.items())
    return " ".join(["--arch transformer", *flags])


def parameters(flags: str, args: argparse.Namespace) -> int:
    """Number of parameters that are trained."""
    return sum(p.numel() for p in learned_parameters(build(flags, args)).values())


def peak_memory(flags: str, args: argparse.Namespace) -> float:
    """GiB that a training step takes at its peak: of the GPU's memory, or of a fresh process."""
    if args.device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        step = Workload(args).phase("train", build(flags, args))
        for _ in range(2):
            step()
        return torch.cuda.max_memory_allocated() / 2**30
    command = [sys.executable, __file__, *sys.argv[1:], "--peak-memory-of", flags]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(output.splitlines()[-1])


def print_peak_memory(flags: str, args: argparse.Namespace) -> None:
    """What the fresh process of :func:`peak_memory` does."""
    step = Workload(args).phase("train", build(flags, args))
    for _ in range(2):
        step()
    # not getrusage: its peak is the parent's where that was higher when it started this process
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (peak,) = (int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    print(peak / 2**20)


def describe_machine(args: argparse.Namespace) -> str:
    """What the numbers were measured on."""
    if args.device == "cuda":
        where = torch.cuda.get_device_name()
    else:
        where = f"CPU {processor()}, {torch.get_num_threads()} threads"
    return (
        f"{where}; torch {torch.__version__}, Python {platform.python_version()}; "
        f"{args.size}, {args.dtype}, vocabulary {args.vocabulary}, batches of "
        f"{args.tokens // args.length} x {args.length} tokens, decoding {args.sentences} "
        f"sentences with beam {args.beam}; {args.repeats} repeats"
    )


def processor() -> str:
    """The model name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "?")


def table(results: List[Dict[str, Any]], phases: Sequence[str]) -> str:
    """The results as a Markdown table."""
    head = ["system", "parameters"]
    for phase in phases:
        head += [f"{phase}, ours / stock", f"{phase}, floor / stock"]
        head += ["the paper"] if phase != "forward" else []
    head += ["tokens/s in training", "peak memory, ours / stock (GiB)"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        cells = [result["name"], f"{result['extra_parameters'] / 1e6:+.1f}M"]
        for phase in phases:
            measured = result["phases"][phase]
            cells += [str(measured["ours"]), str(measured.get("floor", ""))]
            paper = result.get(f"paper_{phase}")
            cells += [f"{paper:.2f}" if paper else ""] if phase != "forward" else []
        speed = result["phases"].get("train", {}).get("tokens_per_second", {}).get("ours")
        memory = result["memory"]
        cells += [f"{speed:,.0f}" if speed else ""]
        cells += [f"{memory['ours']:.2f} / {memory['stock']:.2f}" if memory else ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse_arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """The command line; a bad value ends with one line."""
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", nargs="+", choices=ROWS, metavar="ROW", help=f"default: all of {', '.join(ROWS)}")
    add("--system", action="append", default=[], metavar="NAME: FLAGS", help="instead of rows")
    add("--size", choices=SIZES, default="base")
    add("--phases", nargs="+", choices=PHASES, default=PHASES)
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--dtype", choices=DTYPES, default="fp32")
    add("--tokens", type=int, default=4096, help="tokens of a batch, each side (default 4096)")
    add("--length", type=int, default=32, help="tokens of a sentence (default 32)")
    add("--sentences", type=int, default=16, help="sentences decoded at once (default 16)")
    add("--beam", type=int, default=4)
    add("--vocabulary", type=int, default=32000)
    add("--repeats", type=int, default=7)
    add("--warmup", type=int, default=2)
    add("--threads", type=int, default=0, help="CPU threads (default: torch's)")
    add("--seed", type=int, default=1)
    add("--no-floor", action="store_true", help="leave out the mean of the votes")
    add("--no-memory", action="store_true", help="leave out the peak memory")
    add("--json", type=Path, metavar="FILE", help="also write every number there")
    add("--peak-memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    for name in ("tokens", "length", "sentences", "beam", "repeats"):
        if getattr(args, name) < 1:
            parser.error(f"--{name}: {getattr(args, name)}: give 1 or more")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this torch sees no GPU: use --device cpu")
    for system in args.system:
        if ":" not in system:
            parser.error(f"--system: {system!r}: give 'NAME: FLAGS'")
    return args


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Measure and print the table."""
    args = parse_arguments(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.peak_memory_of:
        print_peak_memory(args.peak_memory_of, args)
        return
    named = {
        name.strip(): Row(flags) for name, _, flags in (s.partition(":") for s in args.system)
    } or {name: ROWS[name] for name in args.rows or ROWS}
    print(f"{describe_machine(args)}\n", flush=True)
    stock = stock_flags(args)
    stock_parameters = parameters(stock, args)
    stock_memory = 0.0 if args.no_memory else peak_memory(stock, args)
    results = []
    for name, row in named.items():
        flags = row.flags.format(size=SIZES[args.size])
        result: Dict[str, Any] = {"name": name, **asdict(row), "flags": flags, "memory": {}}
        result["extra_parameters"] = parameters(flags, args) - stock_parameters
        result["phases"] = {phase: compare(flags, phase, args) for phase in args.phases}
        if not args.no_memory:
            result["memory"] = {"ours": peak_memory(flags, args), "stock": stock_memory}
        results.append(result)
        print(f"measured {name}", file=sys.stderr, flush=True)
    print(table(results, args.phases))
    if args.json:
        report = {"machine": describe_machine(args), "results": results}
        beside = args.json.with_suffix(".part")
        beside.write_text(json.dumps(report, indent=1, default=asdict), encoding="utf-8")
        beside.replace(args.json)


if __name__ == "__main__":
    logging.disable(logging.INFO)  # importing the host turned on the chatter of every library
    main()
