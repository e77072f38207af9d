"""Run the test: ``python -m tests.kills [--rounds N] [--seed S] [--kinds kill,full-disk]``."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from tests.corpora.conftest import tree
from tests.kills.launch import LAUNCHER, command, results, started, write_sources

STAGES = ("prepare", "train", "average", "generate news", "score news", "report")
KINDS = ("kill", "full-disk")
REPORT = "capsnmt.report"


class Reference:
    """An uninterrupted launch.

    Attributes:
        sources: the corpus and the configuration.
        seconds: how long each stage took.
        results: what it wrote.
    """

    def __init__(self, folder: Path) -> None:
        self.sources, output = folder / "sources", folder / "uninterrupted"
        write_sources(self.sources)
        with started(LAUNCHER, command(self.sources, output)) as launch:
            assert launch.end() == 0, launch.errors
        begun = [
            (line[3:], moment)
            for line, moment in zip(launch.lines, launch.times)
            if line.startswith(("-- ", "== "))
        ]
        begun = [(name.partition(":")[0], moment) for name, moment in begun]
        ends = [moment for _, moment in begun[1:]] + [time.monotonic()]
        self.seconds: Dict[str, float] = {
            name: end - moment for (name, moment), end in zip(begun, ends) if name in STAGES
        }
        self.seconds["report"] = self.seconds["score news"]  # about as long; it prints no stages
        self.results = results(output)


def report(output: Path, folder: Path) -> Dict[str, bytes]:
    """Report on a launch; return the files of the report."""
    with started(REPORT, [str(output / "runs"), "--output", str(folder)]) as launch:
        assert launch.end() == 0, launch.errors
    return tree(folder)


class Round:
    """One launch with a fault in every stage.

    Attributes:
        faults: what is wrong.
    """

    def __init__(self, reference: Reference, output: Path, chance: random.Random) -> None:
        self.reference, self.output, self.chance = reference, output, chance
        self.faults: List[str] = []

    def interrupt_launch(self, stages: Sequence[str], kinds: Sequence[str]) -> None:
        """Interrupt the launch in some stages, each by one of the kinds."""
        for stage in stages:
            arguments = command(self.reference.sources, self.output)
            self.interrupt(LAUNCHER, arguments, stage, self.chance.choice(kinds))

    def finish_launch(self) -> None:
        """Let the launch continue to its end, and compare the results."""
        with started(LAUNCHER, command(self.reference.sources, self.output)) as launch:
            if launch.end() != 0:
                self.faults.append(f"the launch does not continue: {launch.errors}")
                return
        made, expected = results(self.output), self.reference.results
        self.faults += [f"{name} differ" for name in made if made[name] != expected[name]]

    def interrupt_report(self, kinds: Sequence[str]) -> None:
        """Interrupt the report of a finished launch, and compare it with an uninterrupted one."""
        folder = self.output / "report"
        arguments = [str(self.output / "runs"), "--output", str(folder)]
        self.interrupt(REPORT, arguments, "report", self.chance.choice(kinds))
        if report(self.output, folder) != report(self.output, self.output / "report-2"):
            self.faults.append("the reports differ")

    def interrupt(self, module: str, arguments: List[str], stage: str, kind: str) -> None:
        """Start a command, and interrupt it at a random moment of a stage."""
        with started(module, arguments) as launch:
            if stage != "report" and not launch.reaches(f"-- {stage}"):
                self.faults.append(f"{stage} is not reached: {launch.errors}")
                return
            moment = self.chance.uniform(0, self.reference.seconds[stage])
            launch.process.join(moment)
            at = next((line for line in launch.lines[::-1] if line[:3] == "-- "), f"-- {stage}")
            where = f"{kind} after {moment:.2f} s of {stage}, in {at[3:]}"
            if kind == "kill":
                launch.send(signal.SIGKILL)
                launch.end()
                print(f"  {where}: {len(launch.started())} process(es) go on", flush=True)
                return
            launch.fill_disk()
            status = launch.end()
            last = launch.errors[-1] if launch.errors else ""
            print(f"  {where}: status {status} {last[-150:]}", flush=True)
            if status and not last.startswith("error: "):
                self.faults.append(f"{where}: status {status}, {launch.errors}")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the test and return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="tests.kills", description=__doc__)
    parser.add_argument("--rounds", type=int, default=17, help="each has a fault in every stage")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated list")
    args = parser.parse_args(argv)
    work = Path(tempfile.mkdtemp(prefix="kills-"))
    os.environ["TMPDIR"] = str(work)  # what is killed leaves its temporary files
    reference = Reference(work)
    print({name: round(seconds, 2) for name, seconds in reference.seconds.items()})
    wrong = 0
    for number in range(args.rounds):
        print(f"round {number} of seed {args.seed}", flush=True)
        chance = random.Random(f"{args.seed} {number}")
        one = Round(reference, work / f"round-{number}", chance)
        kinds = args.kinds.split(",")
        one.interrupt_launch(STAGES[:-1], kinds)
        one.finish_launch()
        if not one.faults:
            one.interrupt_report(kinds)
        for fault in one.faults:
            print(f"FAULT in round {number} of seed {args.seed}: {fault}", flush=True)
        wrong += bool(one.faults)
        if not one.faults:
            shutil.rmtree(one.output)
    if wrong:
        print(f"{wrong} rounds failed; their files: {work}")
        return 1
    shutil.rmtree(work)
    print(f"{args.rounds * len(STAGES)} faults of seed {args.seed}: the results are as without")
    return 0


if __name__ == "__main__":
    sys.exit(main())
