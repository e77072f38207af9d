"""The net: what users rely on, as text that is compared with what was recorded.

A case is a function that runs commands in a :class:`World` and returns text. Its promise, one
sentence, is the first line of its golden, ``golden/NAME.txt``.
"""

import difflib
import hashlib
import importlib
import io
import json
import math
import os
import re
import subprocess
import sys
import zlib
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.commands import filled
from tests.interpreter import COMMANDS, ROOT, environment, programs, ran, words

GOLDEN, DATA = (Path(__file__).with_name(name) for name in ("golden", "data"))
# variables of all commands
TERMINAL = {"PYTHONHASHSEED": "0", "COLUMNS": "100", "OMP_WAIT_POLICY": "PASSIVE", "LD_PRELOAD": ""}
NUMBER = re.compile(r"(-?\d+(?:\.\d+(?:e[-+]\d+)?|e-\d+))")


class World:
    """A folder that the cases share: what one of them needs is made once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, programs(folder)

    def once(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return the folder ``name``, made by the first who asks."""
        return filled(self.folder / name, make)

    def start(
        self, command: str, *arguments: object, stdin: str = "", **more: str
    ) -> subprocess.CompletedProcess:
        """Run ``capsnmt-NAME`` or ``fairseq-NAME`` with more variables; normalise the output."""
        given = [self.python, *words(command), *arguments]
        return self._normalised(ran(given, self.folder, stdin, **{**TERMINAL, **more}))

    def call(
        self, command: str, *arguments: object, cwd: Optional[Path] = None
    ) -> subprocess.CompletedProcess:
        """The same in this process, which is faster, for a command that only reads and prints."""
        module, _, function = COMMANDS.get(command, f"{command}:main").partition(":")
        streams = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patched, ExitStack() as here:
            patched.chdir(cwd or self.folder)
            patched.setattr(sys, "argv", [command, *map(str, arguments)])
            patched.setattr(sys, "executable", str(self.python))
            here.enter_context(patch.dict(os.environ, {**environment(), **TERMINAL}, clear=True))
            here.enter_context(redirect_stdout(streams[0]))
            here.enter_context(redirect_stderr(streams[1]))
            try:
                status = getattr(importlib.import_module(module), function)()
            except SystemExit as end:
                status = end.code
        texts = [stream.getvalue() for stream in streams]
        done = subprocess.CompletedProcess([command, *arguments], status, *texts)
        return self._normalised(done)

    def script(
        self, name: str, *flags: str, cwd: Optional[Path] = None
    ) -> subprocess.CompletedProcess:
        given = ["bash", ROOT / "scripts" / name, *flags]
        done = ran(given, cwd or self.folder, **TERMINAL, PYTHON=str(self.python))
        return self._normalised(done)

    def _normalised(self, done: subprocess.CompletedProcess) -> subprocess.CompletedProcess:
        done.stdout, done.stderr = map(self.normalise, (done.stdout, done.stderr))
        return done

    def run(self, command: str, *arguments: object, stdin: str = "", **more: str) -> str:
        """Run a command that must succeed; return its normalised output."""
        done = self.start(command, *arguments, stdin=stdin, **more)
        assert done.returncode == 0, f"{done.args}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def log(self, command: str, *arguments: object) -> str:
        """The same, with the standard error: fairseq logs to either."""
        done = self.start(command, *arguments)
        assert done.returncode == 0, f"{done.args}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def normalise(self, text: str) -> str:
        """Replace what depends on the machine, the folder and the time."""
        for path, name in ((self.python, "python"), (self.folder, "HERE"), (ROOT, "ROOT")):
            # as it is, and as bash quotes it
            text = text.replace(str(path), name).replace(str(path).replace(" ", "\\ "), name)
        # quotes that only the name of a folder needed
        text = re.sub(r"'((?:[\w-]+=)?(?:python|HERE|ROOT)[\w./:=+%-]*)'", r"\1", text)
        text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(Z|\+\d\d:\d\d)?", "TIME", text)
        text = re.sub(r"one of the \d+ in ROOT", "one of the COUNT in ROOT", text)
        text = re.sub(r"(version:|sacremoses\.|versions\.[\w-]+: \")\d[\w.]*", r"\1V", text)
        return re.sub(r"\b\d+(\.\d+)? (s|seconds|min)\b", "SECONDS", text)


@dataclass(frozen=True)
class Case:
    """A case: its promise, the function, and how it is compared."""

    name: str
    promise: str
    make: Callable[[World], str]
    floats: bool
    nightly: bool

    @property
    def path(self) -> Path:
        return GOLDEN / f"{self.name}.txt"

    def text(self, world: World) -> str:
        return f"# {self.promise}\n{self.make(world).rstrip()}\n"


CASES: Dict[str, Case] = {}


def frozen(promise: str, floats: bool = False, nightly: bool = False, name: str = "") -> Callable:
    """Register a case by its name; with ``floats``, last digits of numbers may differ by two."""

    def register(make: Callable[[World], str]) -> Callable[[World], str]:
        case = Case(name or make.__name__, promise, make, floats, nightly)
        CASES[case.name] = case
        return make

    return register


def same(recorded: str, found: str) -> bool:
    """Whether two lines are equal up to the last digit of their numbers."""
    parts, others = NUMBER.split(recorded), NUMBER.split(found)
    if parts[::2] != others[::2]:
        return False
    for part, other in zip(parts[1::2], others[1::2]):
        mantissa, _, exponent = part.partition("e")
        unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        if not math.isclose(float(part), float(other), rel_tol=0, abs_tol=2.01 * unit):
            return False
    return True


def differences(case: Case, found: str) -> str:
    """The lines that differ from the golden, or nothing."""
    recorded = case.path.read_text("utf-8") if case.path.exists() else ""
    old, new = recorded.splitlines(), found.splitlines()
    if case.floats and len(old) == len(new):
        new = [line if same(line, other) else other for line, other in zip(old, new)]
    if old == new:
        return ""
    diff = difflib.unified_diff(old, new, str(case.path), "now", n=1, lineterm="")
    return f"{case.promise}\n" + "\n".join(diff)


def weight(name: str, shape: Iterable[int]) -> Tensor:
    """The value of a parameter: no random numbers, so it is the same with every torch.

    **D**: the square keeps a matrix from having rank two, and a gain of a norm is around one.
    """
    shape = list(shape)
    fan_in = math.prod(shape[1:]) if len(shape) > 1 else 10
    steps = torch.arange(math.prod(shape), dtype=torch.float64)
    phase = 0.7 * steps + 0.013 * steps**2 + zlib.crc32(name.encode()) % 997
    values = torch.sin(phase) / math.sqrt(fan_in)
    return values.reshape(shape) + float(name.endswith("norm.weight"))


@torch.no_grad()
def set_weights(model: torch.nn.Module) -> torch.nn.Module:
    """Give every parameter the values of its name."""
    for name, parameter in model.named_parameters():
        parameter.copy_(weight(name, parameter.shape))
    for name, buffer in model.named_buffers():
        if name.endswith("coefficients"):  # drawn
            buffer.copy_(weight(name, buffer.shape).softmax(-1))
    return model


def state_of(state: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """The same for a checkpoint's ``model``: tensors of several numbers are parameters."""
    known: Dict[int, str] = {}  # a shared parameter has the values of its first name
    return {
        name: weight(known.setdefault(tensor.data_ptr(), name), tensor.shape).to(tensor)
        if tensor.numel() > 1
        else tensor
        for name, tensor in state.items()
    }


def short(value: float, digits: int = 6) -> str:
    """A number with so many significant digits, always with a point; zero up to rounding is 0."""
    if abs(value) < 1e-9:
        return "0"
    text = f"{value:#.{digits}g}"
    return text if "e" in text or not text.endswith(".") else text + "0"


def rounded(text: str, digits: int = 4) -> str:
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda found: short(float(found[0]), digits), text)


def digest(content: Any) -> str:
    """A short hash of bytes, or of what JSON can hold."""
    if not isinstance(content, bytes):
        content = json.dumps(content, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def tree(folder: Path) -> List[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(folder)) for path in files)


def outline(value: Any, place: str = "") -> List[str]:
    """A JSON value as lines ``place: value``, with six digits of each number."""
    if isinstance(value, float):
        return [f"{place}: {short(value)}"]
    if not isinstance(value, (dict, list)) or not value:
        return [f"{place}: {json.dumps(value, ensure_ascii=False)}"]
    if isinstance(value, list) and not any(isinstance(each, (dict, list)) for each in value):
        words = (
            short(each) if isinstance(each, float) else json.dumps(each, ensure_ascii=False)
            for each in value
        )
        return [f"{place}: [{', '.join(words)}]"]
    if isinstance(value, dict):
        return [line for k in sorted(value) for line in outline(value[k], f"{place}.{k}")]
    return [line for k, each in enumerate(value) for line in outline(each, f"{place}[{k}]")]


def load(path: Path) -> Dict[str, Any]:
    return torch.load(path, map_location="cpu", weights_only=False)
