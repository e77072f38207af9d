"""The record of a preparation: steps, their settings, and every file's size and checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capsnmt.checksums import Checksums, files_below
from capsnmt.files import installed_version, remove, temporary_path

NAME = "manifest.json"
# Part of every fingerprint: raise it when the code of a step changes what the step writes.
FORMAT = 2
WITHOUT_LINES = {".bin", ".idx", ".gz", ".whl"}


@dataclass(frozen=True)
class Step:
    """One stage of a preparation.

    Attributes:
        name: unique in the preparation.
        inputs: name -> file or folder.
        outputs: files or folders, relative to the output folder.
        settings: everything else that the outputs depend on, as JSON.
        run: writes each output to the path it is given; may return notes (JSON).
        tools: distributions whose versions are recorded.
        command: the command of the step; by default that of the preparation.
    """

    name: str
    inputs: Mapping[str, Path]
    outputs: tuple[str, ...]
    settings: Mapping[str, Any]
    run: Callable[[list[Path]], Mapping[str, Any] | None]
    tools: tuple[str, ...] = ()
    command: str = ""


def tool_versions(tools: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of the distributions that are installed."""
    versions = {tool: installed_version(tool) for tool in tools}
    return {tool: version for tool, version in versions.items() if version is not None}


class Manifest:
    """``manifest.json`` of an output folder, which exists if and only if the folder is complete.

    It holds nothing that differs between two runs of one command (no time, no host), so that a
    preparation that was killed and resumed ends with the same bytes.

    Args:
        folder: the output folder.
        header: what is recorded about the entire preparation.
        verify: read every file again instead of trusting the checksums of unchanged files.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any], verify: bool = False) -> None:
        self.folder = folder
        self.header = dict(header)
        self.checksums = Checksums(folder, trust=not verify)
        old = load(folder)
        self.steps: dict[str, dict[str, Any]] = old.get("steps", {})
        self.sources: dict[str, dict[str, Any]] = old.get("sources", {})

    def is_complete(self, step: Step) -> bool:
        """Return whether ``step`` was done with these inputs and settings and is undamaged."""
        record = self.steps.get(step.name)
        if record is None or record["fingerprint"] != self._fingerprint(step):
            return False
        files = {str(path.relative_to(self.folder)): path for path in self._files(step)}
        return files.keys() == record["files"].keys() and all(
            path.is_file()
            and path.stat().st_size == record["files"][name]["bytes"]
            and self.checksums.of(path) == record["files"][name]["sha256"]
            for name, path in files.items()
        )

    def record_source(self, path: Path, known: bool) -> None:
        """Record a fetched file.

        Args:
            path: the file.
            known: whether the recipe has its checksum; if not, the first use is trusted.
        """
        source = {
            "bytes": path.stat().st_size,
            "sha256": self.checksums.of(path),
            "trusted": "by the recipe's checksum" if known else "at first use",
        }
        if self.sources.get(path.name) != source:
            self.sources[path.name] = source
            self.reopen()
            self.save()

    def record(self, step: Step, notes: Mapping[str, Any] | None) -> None:
        """Record that ``step`` is done."""
        self.steps[step.name] = {
            "fingerprint": self._fingerprint(step),
            **({"command": step.command} if step.command else {}),
            "settings": dict(step.settings),
            "tools": tool_versions(step.tools),
            "notes": dict(notes or {}),
            "inputs": self._inputs(step),
            "files": {
                str(path.relative_to(self.folder)): self._describe(path)
                for path in self._files(step)
            },
        }

    def reopen(self) -> None:
        """Mark the folder as incomplete: remove ``manifest.json`` until `close`."""
        if (self.folder / NAME).exists():
            os.replace(self.folder / NAME, temporary_path(self.folder / NAME))

    def save(self) -> None:
        """Record the completed steps, for a run that resumes after a kill."""
        self._write(temporary_path(self.folder / NAME))

    def close(self, order: list[str]) -> None:
        """Write ``manifest.json``: the folder is complete. Steps not in ``order`` are dropped.

        If nothing had to be done the file stays as it is, with the command that made the data.
        """
        if not ((self.folder / NAME).exists() and list(self.steps) == order):
            self.steps = {name: self.steps[name] for name in order}
            self._write(self.folder / NAME)
            remove(temporary_path(self.folder / NAME))
        self.checksums.save()

    def recorded_inputs(self, name: str) -> Mapping[str, str]:
        """Return the checksums of the inputs of a completed step; empty if it is not completed."""
        return self.steps.get(name, {}).get("inputs", {})

    def recorded_settings(self, name: str) -> Mapping[str, Any]:
        """Return the settings of a completed step; empty if it is not completed."""
        return self.steps.get(name, {}).get("settings", {})

    def _inputs(self, step: Step) -> dict[str, str]:
        """Return the checksum of each input of a step.

        An input that is gone counts as unchanged: a source in a folder that the user does not give
        again.
        """
        recorded = self.recorded_inputs(step.name)
        return {
            name: recorded[name]
            if name in recorded and not path.exists()
            else self.checksums.of(path)
            for name, path in sorted(step.inputs.items())
        }

    def _fingerprint(self, step: Step) -> str:
        # D: tool versions are recorded but do not count: an upgraded library must not change the
        # data under a training that is to be resumed.
        content = [FORMAT, step.name, self._inputs(step), step.outputs, step.settings]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _files(self, step: Step) -> list[Path]:
        files: list[Path] = []
        for output in step.outputs:
            path = self.folder / output
            files += files_below(path) if path.is_dir() else [path]
        return files

    def _describe(self, path: Path) -> dict[str, int | str]:
        description: dict[str, int | str] = {
            "bytes": path.stat().st_size,
            "sha256": self.checksums.of(path),
        }
        if path.suffix in WITHOUT_LINES:
            return description
        lines = tokens = 0
        with path.open("rb") as stream:
            for line in stream:
                lines += 1
                tokens += len(line.split())
        return {**description, "lines": lines, "tokens": tokens}

    def _write(self, path: Path) -> None:
        unfinished = path.with_name(f"{path.name}.new")
        content = {**self.header, "sources": self.sources, "steps": self.steps}
        text = json.dumps(content, indent=2, ensure_ascii=False)
        # bytes of a file's name that are not UTF-8 become JSON's escapes
        unfinished.write_text(f"{text}\n", encoding="utf-8", errors="backslashreplace")
        os.replace(unfinished, path)
        self.checksums.save()


def load(folder: Path) -> dict[str, Any]:
    """Return the manifest of ``folder``, complete or not; empty if none can be read."""
    for path in (folder / NAME, temporary_path(folder / NAME)):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            continue
        if isinstance(content, dict):
            return content
    return {}
