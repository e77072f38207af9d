"""Run the test: ``python -m tests.kills [--rounds N] [--seed S] [--kinds kill,full-disk]``."""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from tests.corpora.conftest import tree
from tests.forked import INTERPRETER
from tests.interpreter import interpreter
from tests.kills.launch import LAUNCHER, command, results, started, write_sources

STAGES = ("prepare", "train", "average", "generate news", "score news")
KINDS = ("kill", "full-disk")
REPORT = "capsnmt.report"


class Reference(NamedTuple):
    """An uninterrupted launch: its corpus, the seconds of each stage, and what it wrote."""

    sources: Path
    seconds: Dict[str, float]
    results: Dict[str, Any]


def reference(folder: Path) -> Reference:
    """Launch without interruption."""
    sources, output = folder / "sources", folder / "uninterrupted"
    write_sources(sources)
    with started(LAUNCHER, command(sources, output)) as launch:
        assert launch.end() == 0, launch.errors
    begun = [
        (line[3:].partition(":")[0], moment)
        for line, moment in zip(launch.lines, launch.times)
        if line.startswith(("-- ", "== "))
    ]
    ends = [moment for _, moment in begun[1:]] + [time.monotonic()]
    seconds = {name: end - moment for (name, moment), end in zip(begun, ends) if name in STAGES}
    seconds["report"] = seconds["score news"]  # about as long; it prints no stages
    return Reference(sources, seconds, results(output))


def interrupt(
    module: str, arguments: List[str], stage: str, seconds: float, kind: str
) -> Iterator[str]:
    """Start a command, and interrupt it some seconds after a stage began; yield its faults."""
    with started(module, arguments) as launch:
        if stage != "report" and not launch.reaches(f"-- {stage}"):
            yield f"{stage} is not reached: {launch.errors}"
            return
        launch.process.join(seconds)
        at = next((line for line in launch.lines[::-1] if line[:3] == "-- "), f"-- {stage}")
        where = f"{kind} after {seconds:.2f} s of {stage}, in {at[3:]}"
        if kind == "kill":
            launch.send(signal.SIGKILL)
            launch.end()
            print(f"  {where}: {len(launch.started())} process(es) go on", flush=True)
            return
        launch.fill_disk()
        status = launch.end()
        last = launch.errors[-1] if launch.errors else ""
        print(f"  {where}: status {status} {last[-150:]}", flush=True)
        said = [*launch.lines[-1:], last] if "the lines above" in last else [last]
        if status and not (last.startswith("error: ") and any("/" in line for line in said)):
            yield f"{where}: status {status}, {launch.errors}"


def report(output: Path, folder: Path) -> Dict[str, bytes]:
    """Report on a launch; return the files of the report."""
    with started(REPORT, [str(output / "runs"), "--output", str(folder)]) as launch:
        assert launch.end() == 0, launch.errors
    return tree(folder)


def round_faults(
    expected: Reference, output: Path, chance: random.Random, kinds: Sequence[str]
) -> Iterator[str]:
    """Interrupt a launch once in every stage, let it end, then its report; yield what is wrong."""
    arguments = command(expected.sources, output)
    for stage in STAGES:
        moment = chance.uniform(0, expected.seconds[stage])
        yield from interrupt(LAUNCHER, arguments, stage, moment, chance.choice(kinds))
    with started(LAUNCHER, arguments) as launch:
        if launch.end() != 0:
            yield f"the launch does not continue: {launch.errors}"
            return
    made = results(output)
    yield from (f"{name} differ" for name in made if made[name] != expected.results[name])
    words = [str(output / "runs"), "--output", str(output / "report")]
    moment = chance.uniform(0, expected.seconds["report"])
    yield from interrupt(REPORT, words, "report", moment, chance.choice(kinds))
    if report(output, output / "report") != report(output, output / "report-2"):
        yield "the reports differ"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the test and return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="tests.kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=17, help="each has a fault in every stage")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated list")
    args = parser.parse_args(argv)
    work = Path(tempfile.mkdtemp(prefix="kills-"))
    os.environ["TMPDIR"] = str(work)  # what is killed leaves its temporary files
    if args.kinds == "kill":  # a full disk is that of interpreters which the launcher starts itself
        os.environ[INTERPRETER] = str(interpreter())
    expected = reference(work)
    print({name: round(seconds, 2) for name, seconds in expected.seconds.items()})
    wrong = 0
    for number in range(args.rounds):
        print(f"round {number} of seed {args.seed}", flush=True)
        chance, output = random.Random(f"{args.seed} {number}"), work / f"round-{number}"
        faults = [*round_faults(expected, output, chance, args.kinds.split(","))]
        for fault in faults:
            print(f"FAULT in round {number} of seed {args.seed}: {fault}", flush=True)
        wrong += bool(faults)
        if not faults:
            shutil.rmtree(output)
    if wrong:
        print(f"{wrong} rounds failed; their files: {work}")
        return 1
    shutil.rmtree(work)
    print(f"{args.rounds} rounds of seed {args.seed}: the results are as without faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
