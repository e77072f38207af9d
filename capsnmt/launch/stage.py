"""A stage of a run: a command, the files it reads and the files it writes."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Tuple

from capsnmt.files import temporary_path


@dataclass(frozen=True)
class Stage:
    """One command of a run.

    Attributes:
        name: the name of the stage.
        program: what runs the command: the interpreter and the module, or what starts several.
        arguments: the words that follow the module.
        inputs: the files that the outputs depend on; the stage runs again when one has changed.
        outputs: the files that the command writes.
        stdout: the file for its standard output; ``None`` shows it to the user.
        lines: the text that fairseq-generate translates to ``stdout``, for the progress.
    """

    name: str
    program: Tuple[str, ...]
    arguments: Tuple[str, ...]
    inputs: Tuple[Path, ...] = ()
    outputs: Tuple[Path, ...] = ()
    stdout: Optional[Path] = None
    lines: Optional[Path] = None

    @property
    def argv(self) -> Tuple[str, ...]:
        """The complete command."""
        return self.program + self.arguments

    def shell(self) -> str:
        """Return the command as a line for a shell."""
        line = shlex.join(self.argv)
        if self.stdout is None:
            return line
        part, output = shlex.quote(str(temporary_path(self.stdout))), shlex.quote(str(self.stdout))
        return f"{line} >{part} && mv {part} {output}"


def python(module: str) -> Tuple[str, ...]:
    """Return the program that runs a module with this interpreter."""
    return (sys.executable, "-m", module)
