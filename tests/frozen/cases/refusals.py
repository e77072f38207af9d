"""Help, and command lines that are refused in one line."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import List

from tests.evaluation.outputs import write_outputs
from tests.frozen.kit import World, frozen, variables
from tests.interpreter import COMMANDS, ROOT
from tests.support import SMALL, parse

REFUSED = Path(__file__).parents[1] / "data" / "refusals.txt"
SCRIPTS = ("demo", "test", "run_evidence", "run_experiment", "evaluate", "benchmark_gpu")
SCRIPTS_REFUSE = ("demo", "run_evidence", "run_experiment", "benchmark_gpu",
                  "run_classification_on_cpu")  # fmt: skip

# what a command cannot do without, if it is not an input and --output
NEEDED = {"capsnmt-run": [], "capsnmt-evaluate": ["x"], "capsnmt-translate": ["x"]}


def script(world: World, name: str, flag: str) -> List[str]:
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / f"{name}.sh"), flag],
        env={**variables(), "PYTHON": str(world.python)},
        cwd=world.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    text = world.normalise(done.stdout + done.stderr).rstrip()
    return [f"== {name}.sh {flag}: status {done.returncode}", text]


@frozen("every command and script has this help")
def help_texts(world: World) -> str:
    lines: List[str] = []
    for command in COMMANDS:
        done = world.call(command, "--help")
        lines += [f"== {command} --help: status {done.returncode or 0}", done.stdout.rstrip()]
    for name in SCRIPTS:
        lines += script(world, name, "--help")
    return "\n".join(lines)


@frozen("a flag that no command has is refused in one line with status 2 (1 by a script)")
def unknown_flags(world: World) -> str:
    lines: List[str] = []
    for command in COMMANDS:
        done = world.call(command, *NEEDED.get(command, ["x", "--output", "x"]), "--no-such-flag")
        lines += [f"== {command}: status {done.returncode}", done.stderr.rstrip()]
    for name in SCRIPTS_REFUSE:
        lines += script(world, name, "--no-such-flag")
    return "\n".join(lines)


@frozen("each of these command lines is refused with this line and writes nothing")
def refusals(world: World) -> str:
    folder = world.once("refused", lambda folder: [write_outputs(folder), None][1])
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    lines: List[str] = []
    for line in REFUSED.read_text("utf-8").splitlines():
        command, *arguments = shlex.split(line)
        if command == "model":  # flags of fairseq-train, up to the model
            try:
                parse("capsnmt_transformer", *SMALL, *arguments)
                answer = "accepted"
            except (SystemExit, ValueError) as error:
                answer = world.normalise(str(error))
        else:
            done = world.call(command, *arguments, cwd=folder)
            answer = f"{done.returncode}: {done.stdout}{done.stderr}".rstrip()
            answer = answer.replace("HERE/refused", "HERE")
        lines += [f"$ {line}", f"  {answer}"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    return "\n".join(lines)
