"""The engine of steps: a command or a function with the files it reads and writes.

A step is complete if its outputs exist and the record of its folder has the same command, settings
and inputs, all files with the content that they had. Data preparation and runs use it.
"""

import re
import shlex
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from msgspec.structs import replace

from capsnmt import records
from capsnmt.cli import ExecutionError
from capsnmt.files import content_of, remove, replacing, signature, temporary_path


@dataclass(frozen=True)
class Step:
    """One step: a command, or a function of the outputs' temporary paths."""

    name: str  # unique in its folder
    outputs: Tuple[Path, ...]  # files and folders
    inputs: Tuple[Path, ...] = ()  # files; the step runs again when one has changed
    program: Tuple[str, ...] = ()  # the interpreter and the module, or a launcher of several
    arguments: Tuple[str, ...] = ()  # the words of the command after that
    # instead of a command: writes each output to its path, and may return notes (JSON)
    function: Optional[Callable[[List[Path]], Any]] = None
    settings: Any = None  # what else the outputs of a function depend on (JSON)
    to_file: bool = False  # whether the standard output of the command is the only output
    known: Optional[Callable[[], bool]] = None  # says whether it is complete, instead of a record

    @property
    def argv(self) -> Tuple[str, ...]:
        """The complete command."""
        return self.program + self.arguments

    def shell(self) -> str:
        """Return the command as a line for a shell."""
        line = shlex.join(self.argv)
        if not self.to_file:
            return line
        path = self.outputs[0]
        part, output = shlex.quote(str(temporary_path(path))), shlex.quote(str(path))
        # set -e sees no failure before &&
        return f"(set -e; {line} >{part}; mv {part} {output})"


class StepRecord(records.Record, frozen=True):
    """What a complete step was made of and made."""

    command: Any  # the words of its command, or the settings of its function
    inputs: Dict[str, str]  # file -> its signature
    outputs: Dict[str, str]
    notes: Any = None  # that its function returned


class StepRecords:
    """The records of complete steps, a JSON file.

    ``places`` are named folders, such as that of the data. Files below them, and below the folder
    of the record, are kept relative to them: folders may be moved, and named in any way.
    """

    def __init__(self, path: Path, places: Optional[Mapping[str, Path]] = None) -> None:
        self.path = path
        self.places = {".": path.parent, **(places or {})}
        found = records.load(path) if path.exists() else {}
        self.records = records.build(found, Dict[str, StepRecord], path)

    def complete(self, step: Step, of_any_inputs: bool = False) -> bool:
        """Return whether a step is complete, with this command and these inputs, or of any."""
        if step.known is not None:
            return step.known()
        record = self.records.get(step.name)
        if record is None or not all(path.exists() for path in step.outputs):
            return False
        now = self._record(step, record.notes, record)  # notes are made by the step, not compared
        if of_any_inputs:
            now = replace(now, inputs=record.inputs)
        if _content(record) != _content(now):
            return False
        if now != record:  # copied, or moved: the next one need not read it again
            self.records[step.name] = now
            with suppress(OSError):  # the folder may be another's
                records.write(self.path, self.records)
        return True

    def signature(self, step: str, path: Path) -> str:
        """Return the signature of a file, remembered if it is an input of a complete step."""
        record = self.records.get(step)
        known = "" if record is None else record.inputs.get(self._relative(str(path)), "")
        return signature(path, known)

    def record(self, step: Step, notes: Any = None) -> None:
        """Record that a step has just been completed."""
        self.records[step.name] = self._record(step, notes)
        records.write(self.path, self.records)

    def _command(self, step: Step) -> Any:
        # Not the interpreter, the module and the checkout: the same step in another environment, or
        # after a module was renamed, is the same.
        words = zip(("", *step.arguments), step.arguments)
        command = [self._relative(word) for before, word in words if before != "--user-dir"]
        return command if step.function is None else records.plain(step.settings)

    def _record(self, step: Step, notes: Any, known: Optional[StepRecord] = None) -> StepRecord:
        return StepRecord(
            command=self._command(step),
            inputs=self._signatures(step.inputs, {} if known is None else known.inputs),
            outputs=self._signatures(step.outputs, {} if known is None else known.outputs),
            notes=notes,
        )

    def _signatures(self, paths: Iterable[Path], known: Mapping[str, str]) -> Dict[str, str]:
        """The signature of each file, also of those in folders."""
        found = {}
        for path in paths:
            below = sorted(file for file in path.rglob("*") if file.is_file())
            for file in below if path.is_dir() else [path]:
                name = self._relative(str(file))
                found[name] = signature(file, known.get(name, ""))
        return found

    def _relative(self, word: str) -> str:
        """An argument, ``PATH`` or ``NAME=PATH``, relative to the first place that holds it."""
        starts = [0, *(found.end() for found in re.finditer("=", word))]  # a path may have one, too
        for place, folder in self.places.items():
            for form in (folder, folder.absolute(), folder.resolve()):
                for start in starts:
                    if word[start:] == str(form) or word.startswith(f"{form}/", start):
                        return f"{word[:start]}{place}{word[start + len(str(form)) :]}"
        return word


def run_step(
    step: Step,
    done: StepRecords,
    say: Callable[[str], None],
    label: str,
    start: Optional[Callable[[Step], None]] = None,
) -> None:
    """Run a step unless it is complete, and record it as soon as it is done.

    ``start`` runs the command of a step, and raises if it fails.
    """
    complete = done.complete(step)
    say(f"{label} {step.name}{': complete' if complete else ''}")
    if complete:
        return
    notes = None
    for output in step.outputs:
        output.parent.mkdir(parents=True, exist_ok=True)
    if step.function is not None:
        with ExitStack() as stack:
            unfinished = [stack.enter_context(replacing(path)) for path in step.outputs]
            for path in unfinished:
                remove(path)  # of a step that was killed
            notes = step.function(unfinished)
    elif start is not None:
        start(step)
    missing = [str(output) for output in step.outputs if not output.exists()]
    if missing:
        raise ExecutionError(f"{step.name}: ended without writing {', '.join(missing)}")
    done.record(step, notes)


def _content(record: StepRecord) -> Tuple[Any, ...]:
    """Return what must be the same: the command, but for its device, and what is in the files."""
    words, files = record.command, (record.inputs, record.outputs)
    command = [x for x in words if x != "--cpu"] if isinstance(words, list) else words
    return command, *({key: content_of(each[key]) for key in each} for each in files)
