"""What benchmarks and checks share: command line, parts, runs that take turns, ratios, a table."""

import argparse
import contextlib
import json
import logging
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Sequence

import torch

from capsnmt.cli import ConfigurationError, ExecutionError, OneLineParser, positive, run_command
from capsnmt.files import PACKAGE, atomic_writer, own_version, write_all
from capsnmt.machine import processor
from capsnmt.process import stoppable

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Ratio:
    """The median and the extremes over the repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Iterable[float], others: Iterable[float]) -> "Ratio":
        """Summarise the ratios of numbers to those of the same repeats."""
        values = [number / other for number, other in zip(numbers, others)]
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def take_turns(
    runs: Mapping[str, Callable[[], Any]], repeats: int, clock: Optional[Callable[[], float]] = None
) -> Dict[str, List[float]]:
    """Return what each run took by the clock, or without one what it measured itself.

    They alternate, so that other load on the machine falls on all.
    """
    found: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = clock() if clock else 0.0
            measured = run()
            found[name].append(clock() - start if clock else measured)
    return found


def medians(found: Mapping[str, Sequence[float]]) -> Dict[str, float]:
    """Return the median of what each run took."""
    return {name: statistics.median(values) for name, values in found.items()}


RECORD = "RECORD "


def record(**fields: Any) -> None:
    """Print what a part has found; ``ok=False`` is a fault."""
    print(RECORD + json.dumps(fields), flush=True)


class Parts:
    """Parts of a long work: each a process of its own, which may fail or be killed by itself.

    A part is ``python -m MODULE --part NAME``. The folder gets ``records.jsonl``, every record as
    it comes, and ``log.txt``, all else that the parts print.
    """

    def __init__(
        self, module: str, output: Path, minutes: float, words: Sequence[str], measured: str
    ) -> None:
        self.command = [sys.executable, "-m", module, *words]
        self.output, self.of = output, [*words, measured]
        self.end = time.monotonic() + 60 * minutes
        self.lock = threading.Lock()
        self.records: List[Dict[str, Any]] = []
        self.running: List[subprocess.Popen] = []

    def resume(self) -> None:
        """Take up the records of the parts that an earlier command of the same has ended.

        Raises:
            ConfigurationError: the folder has records of other words, or of what else was measured.
        """
        path = self.output / "records.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        other = next((each["of"] for each in found if each["of"] != self.of), None)
        if other is not None:
            raise ConfigurationError(
                f"--output {self.output} has records of {', '.join(other)}, not of "
                f"{', '.join(self.of)}; give another folder"
            )
        ended = {each["part"] for each in found if "took" in each and each["ok"]}
        self.records = [each for each in found if each["part"] in ended]

    def run(self, limits: Mapping[str, float], at_once: int = 1) -> None:
        """Run parts within a limit of seconds each, in their order, and go on after a failure.

        Raises:
            ExecutionError: parts have failed, or there was no time for them.
        """
        self.output.mkdir(parents=True, exist_ok=True)
        with atomic_writer(self.output / "records.jsonl") as file:
            file.writelines(json.dumps(each) + "\n" for each in self.records)
        with stoppable(self.stop), ThreadPoolExecutor(at_once) as pool:
            try:
                ends = [*pool.map(lambda name: self.run_one(name, limits[name]), limits)]
            except BaseException:  # no signal reaches a part, which has a session of its own
                self.end = 0.0
                for process in [*self.running]:  # whose threads take them out
                    self.kill(process)
                raise
        wrong = [name for name, end in zip(limits, ends) if end]
        if wrong:
            raise ExecutionError(
                f"{len(wrong)} of {len(ends)} parts: {', '.join(wrong)}; {self.output}/log.txt"
            )

    def run_one(self, name: str, limit: float) -> str:
        """Run a part, print its line, and return what went wrong."""
        if any(each["part"] == name for each in self.records):
            print(f"-- {name}: complete", flush=True)
            return ""
        start = time.monotonic()
        limit = min(limit, self.end - start)
        if limit < 1:
            print(f"!! {name}: no time left", flush=True)
            return "no time left"
        process = subprocess.Popen(
            [*self.command, "--part", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            cwd=PACKAGE.parent,
            start_new_session=True,
        )
        self.running.append(process)
        timer = threading.Timer(limit, self.kill, [process])
        timer.start()
        found: List[Dict[str, Any]] = []
        last = ""
        for line in process.stdout or ():
            if line.startswith(RECORD):
                found.append(json.loads(line[len(RECORD) :]))
                self.keep({"part": name, **found[-1]})
            else:
                last = line.strip() or last
                with self.lock, (self.output / "log.txt").open("a", encoding="utf-8") as log:
                    log.write(f"[{name}] {line}")
        status = process.wait()
        self.running.remove(process)
        timer.cancel()
        seconds = round(time.monotonic() - start, 1)
        wrong = "; ".join(str(each) for each in found if not each.get("ok", True))
        if status:
            over = f"ended after {seconds:.0f} s" if status == -signal.SIGKILL else last
            wrong = "; ".join(filter(None, (wrong, over)))
        self.keep({"part": name, "ok": not wrong, "took": seconds})
        said = wrong or ", ".join(f"{k} {v}" for each in found for k, v in each.items())
        print(f"{'!!' if wrong else 'ok'} {name}, {seconds:.0f} s: {said[:300]}", flush=True)
        return wrong

    def stop(self, signum: int) -> None:
        """End this process after a signal."""
        raise SystemExit(128 + signum)

    def kill(self, process: subprocess.Popen) -> None:
        """End a part and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def keep(self, found: Dict[str, Any]) -> None:
        """Write a record."""
        entry = {**found, "of": self.of}
        with self.lock, (self.output / "records.jsonl").open("a", encoding="utf-8") as file:
            self.records.append(entry)
            file.write(json.dumps(entry) + "\n")


def run_parts(
    doc: Optional[str],
    kinds: Mapping[str, Callable[[str, str], None]],
    parts: Callable[[str], Mapping[str, float]],
    minutes: int,
    at_once: Callable[[str], int],
    report: Optional[Callable[[Sequence[Dict[str, Any]]], str]] = None,
) -> None:
    """Run a command of parts, or one of them: ``kinds[KIND](REST, device)`` for "KIND REST".

    Args:
        doc: of the module that runs as the command.
        kinds: what runs the parts.
        parts: the names of all parts on a device, and their limits in seconds.
        minutes: the default of ``--minutes``.
        at_once: how many run at once on a device.
        report: what makes ``report.md`` of all records; a command with one resumes.
    """
    module = f"scripts.{Path(sys.argv[0]).stem}"
    parser = build_parser(doc)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=positive, default=minutes, help=f"default {minutes}")
    folder = PACKAGE.parent / "outputs" / Path(sys.argv[0]).stem
    parser.add_argument("--output", type=Path, default=folder, metavar="DIR")
    parser.add_argument("--only", default="", metavar="WORD", help="parts whose names contain it")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parse_arguments(parser, None)
    if args.part:
        use_threads(args)
        kind, _, rest = args.part.partition(" ")
        kinds[kind](rest, args.device)
        return
    every = parts(args.device)
    chosen = {name: limit for name, limit in every.items() if args.only in name}
    if not chosen:
        parser.error(f"--only is {args.only!r}, which no part has; parts: {', '.join(every)}")
    together = at_once(args.device)
    threads = args.threads or (1 if together > 1 or args.device == "cpu" else None)
    words = ["--device", args.device, *(["--threads", str(threads)] if threads else [])]
    measured = f"{machine(args.device)}; capsnmt {own_version()}"
    work = Parts(module, args.output, args.minutes, words, measured)
    try:
        if report:
            work.resume()
        work.run(chosen, together)
    finally:
        if report and work.records:
            write_all({args.output / "report.md": report(work.records).encode()})
    print(f"all {len(chosen)} parts are right: {args.output}")


def build_parser(doc: Optional[str], threads: Optional[int] = None) -> argparse.ArgumentParser:
    """Build the parser of a benchmark with the flag that all have."""
    parser = OneLineParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    said = f"CPU threads (default {threads or 'those of torch'})"
    parser.add_argument("--threads", type=positive, default=threads, help=said)
    return parser


def add_device(parser: argparse.ArgumentParser, dtypes: Collection[str] = ()) -> None:
    """Add the device, by default a GPU if there is one, and a choice of precisions."""
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=found)
    if dtypes:
        parser.add_argument("--dtype", choices=dtypes, default="fp32", help="default fp32")


def parse_arguments(
    parser: argparse.ArgumentParser, argv: Optional[Sequence[str]]
) -> argparse.Namespace:
    """Parse a command line; a bad value ends in one line."""
    args = parser.parse_args(argv)
    if getattr(args, "device", "cpu") == "cuda" and not torch.cuda.is_available():
        parser.error("--device is cuda, but torch finds no GPU; use --device cpu")
    return args


def use_threads(args: argparse.Namespace) -> None:
    """Give this process the threads of the command line."""
    if args.threads:
        torch.set_num_threads(args.threads)


def machine(device: str) -> str:
    """Return the name of the processor or GPU."""
    if device == "cuda":
        where = torch.cuda.get_device_name()
    else:
        where = f"CPU {processor()}, {torch.get_num_threads()} threads"
    return f"{where}; torch {torch.__version__}, Python {platform.python_version()}"


def line(cells: Iterable[str]) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def head(titles: Collection[str]) -> str:
    """Return the first two lines of a table in Markdown."""
    return f"{line(titles)}\n{line(['---'] * len(titles))}"


def run_script(main: Callable[[], None]) -> None:
    """Run a benchmark as a command."""
    logging.disable(logging.INFO)  # importing fairseq turns on the messages of every library
    warnings.simplefilter("ignore")  # hydra's
    sys.exit(run_command(main))
