"""Run the sweep: ``python -m tests.fuzz [--cases N] [--seed S] [--commands A,B] [--case K]``."""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

from tests.fuzz.commands import COMMANDS, WRITERS
from tests.fuzz.mutations import spoil_arguments, spoil_environment, spoil_file

BOUND = 60  # seconds of processor time, some fifty times what a command needs
ALLOWED = (0, 1, 2)  # success, failed work, bad setting
LONGEST = 3000  # characters of an error: it names a value and a fix, not a file's content
CRASHED = 70


class Ending(NamedTuple):
    """How a case ended: what was spoilt, and what is wrong with it; empty if nothing."""

    spoilt: str
    fault: str


def spoil(name: str, folder: Path, chance: random.Random) -> Dict[str, object]:
    """Spoil one or two things of a command's copied folder; return how to run it."""
    command = COMMANDS[name]
    arguments = list(command.arguments)
    environment: Dict[str, str] = {}
    done: List[str] = []
    for _ in range(chance.choice((1, 1, 2))):
        kind = chance.random()
        files = sorted(
            path for glob in command.spoilt for path in folder.glob(glob) if path.is_file()
        )
        if kind < 0.5 and files:
            done.append(spoil_file(chance.choice(files), chance))
        elif kind < 0.92:
            arguments = spoil_arguments(arguments, chance) if arguments else arguments
            done.append(f"arguments {' '.join(arguments)!r:.300}")
        else:
            environment = spoil_environment(folder, chance)
            done.append(f"environment {environment}")
    return {"arguments": arguments, "environment": environment, "spoilt": "; ".join(done)}


def run_case(name: str, seed: int, number: int, template: Path, work: Path) -> Ending:
    """Run one case in a process of its own and judge how it ends."""
    chance = random.Random(f"{seed} {number} {name}")
    place = work / f"case-{number}"
    folder, streams = place / "a" / "b", place / "streams"
    shutil.copytree(template, folder, symlinks=True)
    streams.mkdir()
    plan = spoil(name, folder, chance)
    outside = _listing(place, folder)
    process = os.fork()
    if process == 0:
        _become(name, plan, folder, streams)
    deadline = time.monotonic() + 10 * BOUND  # of a busy machine
    while (ended := os.waitpid(process, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return Ending(str(plan["spoilt"]), "it hangs")
        time.sleep(0.005)
    errors = (streams / "stderr").read_text("utf-8", "replace")
    fault = _judge(ended[1], errors, folder)
    if not fault and _listing(place, folder) != outside:
        fault = "it wrote outside its folder"
    if not fault:
        shutil.rmtree(place)
    return Ending(str(plan["spoilt"]), fault and f"{fault}\n{errors[-1500:]}")


def _become(name: str, plan: Dict, folder: Path, streams: Path) -> None:
    """Run the command in this process, which was forked for it, and end it."""
    status = CRASHED
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (BOUND, BOUND))
        os.setpgid(0, 0)
        os.chdir(folder)
        for number, stream in enumerate(("stdin", "stdout", "stderr")):
            flags = os.O_RDWR | os.O_CREAT
            os.dup2(os.open(streams / stream, flags, 0o644), number)
        for variable, value in plan["environment"].items():
            os.environ.pop(variable, None) if value == "" else os.environ.update({variable: value})
        tempfile.tempdir = None
        # not those of pytest
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  lives as long as this
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        sys.argv = [f"capsnmt-{name}", *plan["arguments"]]
        try:
            status = COMMANDS[name].main(list(plan["arguments"]))
        except SystemExit as end:  # --help, and errors of argparse's own
            status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else CRASHED)


def _listing(place: Path, folder: Path) -> List[str]:
    """Return the files of a case that lie outside the command's folder."""
    return sorted(
        str(path)
        for path in place.rglob("*")
        if folder not in path.parents and "streams" not in path.parts
    )


def _judge(wait_status: int, errors: str, folder: Path) -> str:
    """Return what is wrong with an ending; empty if nothing is."""
    if os.WIFSIGNALED(wait_status):
        by = os.WTERMSIG(wait_status)
        return "it hangs" if by in (signal.SIGXCPU, signal.SIGKILL) else f"signal {by} ended it"
    status = os.WEXITSTATUS(wait_status)
    if "Traceback" in errors:
        return "it ends with a traceback"
    if status not in ALLOWED:
        return f"its exit status is {status}"
    last = errors.rstrip("\n").rpartition("\n")[2]
    if status and not last.startswith("error: "):
        return f"it ends with {status} and without a line that begins with 'error: '"
    if len(last) > LONGEST:
        return f"its error has {len(last)} characters"
    if left := [str(path.relative_to(folder)) for path in folder.rglob("*.part")]:
        return f"it left {', '.join(left)}"
    return ""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the sweep and return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="cases of all commands together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", default=",".join(COMMANDS), help="comma-separated list")
    parser.add_argument("--case", type=int, help="run this case only")
    args = parser.parse_args(argv)
    names = args.commands.split(",")
    numbers = range(args.cases) if args.case is None else [args.case]
    failed: List[int] = []
    work = Path(tempfile.mkdtemp(prefix="fuzz-"))
    templates: Dict[str, Path] = {}
    for number in numbers:
        name = names[number % len(names)]
        if name not in templates:
            templates[name] = work / f"template-{name}"
            templates[name].mkdir()
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
                WRITERS[name](templates[name])
        spoilt, fault = run_case(name, args.seed, number, templates[name], work)
        if fault:
            failed.append(number)
            print(f"case {number} (seed {args.seed}), {name}: {spoilt}: {fault}", flush=True)
    if failed:
        listed = ", ".join(map(str, failed))
        print(f"{len(failed)} of {len(numbers)} cases failed: {listed}; their files: {work}")
        return 1
    shutil.rmtree(work)
    print(f"{len(numbers)} cases of seed {args.seed}: each succeeded or ended with one line")
    return 0


if __name__ == "__main__":
    sys.exit(main())
