"""Run the sweep: ``python -m tests.fuzz [--cases N] [--seed S] [--commands A,B] [--case K]``."""

import argparse
import importlib
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import threading
import traceback
from contextlib import ExitStack, redirect_stdout, suppress
from pathlib import Path
from signal import SIGKILL, SIGXCPU
from typing import Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

from tests.forked import INTERPRETER, become
from tests.fuzz import filesystems
from tests.fuzz.commands import COMMANDS, Command
from tests.fuzz.mutations import spoil_arguments, spoil_environment, spoil_file
from tests.interpreter import interpreter
from tests.support import PLUGIN

BOUND = 60  # seconds of processor time, some fifty times what a command needs
CRASHED = 70
# Where a command runs, and how often of 100; its files are spoilt where the place is ordinary.
PLACES, WEIGHTS = ("", "odd name", "full disk", "read-only"), (88, 4, 4, 4)
ALLOWED = (0, 1, 2)  # success, failed work, bad setting
LONGEST = 3000  # characters of an error: it names a value and a fix, not a file's content
# Frames of our code. Those of the patches of the host are in every call of what they wrap.
OURS = re.compile(rf'File "{re.escape(PLUGIN)}/(?!host\.py|launch/train\.py)[^"]*\.py", line \d+')


def spoil(
    command: Command, folder: Path, chance: random.Random, times: int
) -> Tuple[List[str], Dict[str, str], str]:
    """Spoil a command's copied folder; return its arguments and environment, and what was done."""
    arguments = list(command.arguments)
    environment: Dict[str, str] = {}
    done: List[str] = []
    for _ in range(times):
        kind = chance.random()
        found = (path for glob in command.spoilt for path in folder.glob(glob) if path.is_file())
        files = sorted(found)
        if kind < 0.5 and files:
            done.append(spoil_file(chance.choice(files), chance))
        elif kind < 0.92:
            arguments = spoil_arguments(arguments, chance) if arguments else arguments
            done.append(f"arguments {' '.join(arguments)!r:.300}")
        else:
            environment = spoil_environment(folder, chance)
            done.append(f"environment {environment}")
    return [*command.fixed, *arguments], environment, "; ".join(done)


def run_case(
    name: str, seed: int, number: int, template: Path, work: Path, spoils: bool = True
) -> str:
    """Run one case in a process of its own; return its fault, or an empty text.

    What is spoilt, and how, follows from the seed and the number; if nothing is, the command must
    succeed. ``template`` has its files, and ``work`` is an empty folder, or that of earlier cases.
    """
    command, chance = COMMANDS[name], random.Random(f"{seed} {number} {name}")
    case = work / f"case-{number}"
    above, temporary = case / "a", case / "temporary"
    for path in (above, temporary):
        path.mkdir(parents=True)
    place = chance.choices(PLACES, WEIGHTS)[0] if spoils else ""
    folder = above / (chance.choice(filesystems.ODD_NAMES) if place == "odd name" else "b")
    shutil.copytree(template, folder, symlinks=True)
    times = chance.choice((1, 1, 2)) if spoils and not place else 0
    arguments, environment, done = spoil(command, folder, chance, times)
    if not environment and place in ("", "odd name"):  # others are of interpreters of their own
        environment = {INTERPRETER: str(interpreter())}
    environment = {"TMPDIR": str(temporary), **environment}  # a case that is killed leaves files
    done = done or f"{place or 'nothing spoilt'}, folder {folder.name!r}"
    outside = _listing(case, folder)
    with ExitStack() as mounts:
        if place == "read-only":
            mounts.callback(filesystems.make_read_only(folder))
        reader, writer = os.pipe()  # not a file: a full disk is that of its own files
        process = os.fork()
        if process == 0:
            full = place == "full disk"
            limit = (lambda: filesystems.fill_disk(chance)) if full else (lambda: None)
            _become(command, arguments, environment, folder, writer, limit)
        os.close(writer)
        deadline = threading.Timer(10 * BOUND, os.killpg, (process, SIGKILL))  # of a busy machine
        deadline.start()
        with open(reader, encoding="utf-8", errors="replace") as stream:
            errors = stream.read()
        status = os.waitpid(process, 0)[1]
        deadline.cancel()
        with suppress(ProcessLookupError):  # what it started and left
            os.killpg(process, SIGKILL)
        fault = fault_of(status, errors, folder, command.is_fairseqs)
        if status and not spoils:
            fault = "it fails with nothing spoilt"
        if not fault and _listing(case, folder) != outside:
            fault = "it wrote outside its folder"
    if not fault:
        shutil.rmtree(case)
    return fault and f"{done}: {fault}\n{errors[-1500:]}"


def _become(
    command: Command,
    arguments: List[str],
    environment: Dict[str, str],
    folder: Path,
    errors: int,
    limit: Callable[[], None],
) -> NoReturn:
    """Run the command in this process, which was forked for it, and end it."""
    status: object = CRASHED
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (BOUND, BOUND))
        os.setpgid(0, 0)
        os.chdir(folder)
        source = Path(command.stdin or os.devnull)
        given = os.open(source if source.exists() else os.devnull, os.O_RDONLY)
        for number, stream in enumerate((given, os.open(os.devnull, os.O_WRONLY), errors)):
            os.dup2(stream, number)
        os.close(errors)
        # not that of pytest
        sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        limit()
        variables = {**os.environ, **environment}
        become(command.entry, arguments, {k: v for k, v in variables.items() if v})
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):  # of fairseq's commands, as the interpreter prints it
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else CRASHED)


def _listing(case: Path, folder: Path) -> List[str]:
    """Return the files of a case that lie outside the command's folder."""
    paths = (path for path in case.rglob("*") if "temporary" not in path.parts)
    return sorted(str(path) for path in paths if folder not in path.parents)


def fault_of(wait_status: int, errors: str, folder: Path, is_fairseqs: bool = False) -> str:
    """Return what is wrong with an ending, as ``os.waitpid`` returns it; empty if nothing is."""
    if os.WIFSIGNALED(wait_status):
        by = os.WTERMSIG(wait_status)
        return "it hangs" if by in (SIGXCPU, SIGKILL) else f"signal {by} ended it"
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.part"))
    status, last = os.WEXITSTATUS(wait_status), errors.rstrip("\n").rpartition("\n")[2]
    if "Traceback" in errors:
        if not is_fairseqs or OURS.search(errors):
            return "it ends with a traceback"
    elif status not in ALLOWED:
        return f"its exit status is {status}"
    elif is_fairseqs:  # its parser names every architecture
        if status and not last:
            return f"it ends with {status} and without a word"
    elif status and not last.startswith("error: "):
        return f"it ends with {status} and without a line that begins with 'error: '"
    elif len(last) > LONGEST:
        return f"its error has {len(last)} characters"
    return f"it left {', '.join(left)}" if left else ""


def template_of(name: str, work: Path) -> Path:
    """Return the folder with the files of a command, written when its first case needs them."""
    write = COMMANDS[name].write
    folder = work / f"template-{write.__name__}"
    if not folder.exists():
        folder.mkdir()
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            write(folder)
    return folder


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the sweep and return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="cases of all commands together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commands", default=",".join(COMMANDS), help="comma-separated list")
    parser.add_argument("--case", type=int, help="run this case only")
    args = parser.parse_args(argv)
    work = Path(tempfile.mkdtemp(prefix="fuzz-"))
    for command in COMMANDS.values():  # once, and not in every fork
        importlib.import_module(command.entry.partition(":")[0])
    names, failed = args.commands.split(","), []
    numbers = range(args.cases) if args.case is None else [args.case]
    for number in numbers:
        name = names[number % len(names)]
        # a sweep over commands that fail anyway would show nothing
        spoils = number >= len(names)
        fault = run_case(name, args.seed, number, template_of(name, work), work, spoils)
        if fault:
            failed.append(number)
            print(f"case {number} (seed {args.seed}), {name}: {fault}", flush=True)
    if failed:
        listed = ", ".join(map(str, failed))
        print(f"{len(failed)} of {len(numbers)} cases failed: {listed}; their files: {work}")
        return 1
    print(f"{len(numbers)} cases of seed {args.seed}: each succeeded or ended with one line")
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
