"""What has been prepared: steps, their settings, and every file's lines, tokens and checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from capsnmt.corpora.files import beside, checksum, describe, remove

NAME = "manifest.json"
# Part of every fingerprint: raise it when the code of a step changes what the step writes.
FORMAT = 2


@dataclass(frozen=True)
class Step:
    """One stage of a preparation.

    Attributes:
        name: unique in the preparation.
        inputs: name -> file or folder.
        outputs: files or folders, relative to the output folder.
        settings: everything else that the outputs depend on; JSON.
        run: writes the outputs, given the paths to write each to; may return notes (JSON).
        tools: distributions whose versions are worth knowing.
        command: what does it; default: the command line of the whole preparation.
    """

    name: str
    inputs: Mapping[str, Path]
    outputs: tuple[str, ...]
    settings: Mapping[str, Any]
    run: Callable[[list[Path]], Mapping[str, Any] | None]
    tools: tuple[str, ...] = ()
    command: str = ""


def tool_versions(tools: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    versions = {}
    for tool in tools:
        try:
            versions[tool] = version(tool)
        except PackageNotFoundError:
            continue
    return versions


class Manifest:
    """``manifest.json`` of an output folder; it is there if and only if all is whole.

    It holds nothing that differs between two runs of one command (no time, no host), so that a
    preparation that was killed and started again ends with the same bytes.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any]):
        self.folder = folder
        self.header = dict(header)
        old = load(folder)
        self.steps: dict[str, dict[str, Any]] = old.get("steps", {})
        self.sources: dict[str, dict[str, Any]] = old.get("sources", {})
        self._checksums: dict[tuple[Path, int, int], str] = {}

    def _sha256(self, path: Path) -> str:
        if path.is_dir():
            told = {str(file.relative_to(path)): self._sha256(file) for file in _files_below(path)}
            return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        status = path.stat()
        key = path, status.st_size, status.st_mtime_ns
        if key not in self._checksums:
            self._checksums[key] = checksum(path)
        return self._checksums[key]

    def _fingerprint(self, step: Step) -> str:
        # D: tool versions are recorded but do not count: an upgraded library must not change the
        # data under a training that is to be resumed.
        inputs = {name: self._sha256(path) for name, path in sorted(step.inputs.items())}
        told = [FORMAT, step.name, inputs, step.outputs, step.settings]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def _files(self, step: Step) -> list[Path]:
        files: list[Path] = []
        for output in step.outputs:
            path = self.folder / output
            files += _files_below(path) if path.is_dir() else [path]
        return files

    def is_whole(self, step: Step) -> bool:
        """Return whether `step` was done with these inputs and settings and is undamaged."""
        record = self.steps.get(step.name)
        if record is None or record["fingerprint"] != self._fingerprint(step):
            return False
        files = {str(path.relative_to(self.folder)): path for path in self._files(step)}
        return files.keys() == record["files"].keys() and all(
            path.is_file()
            and path.stat().st_size == record["files"][name]["bytes"]
            and self._sha256(path) == record["files"][name]["sha256"]
            for name, path in files.items()
        )

    def record_source(self, path: Path, known: bool) -> None:
        """Write down a fetched file: its checksum is the recipe's (`known`), or now trusted."""
        told = {
            "bytes": path.stat().st_size,
            "sha256": self._sha256(path),
            "trusted": "by the recipe's checksum" if known else "at first use",
        }
        if self.sources.get(path.name) != told:
            self.sources[path.name] = told
            self.reopen()
            self.save()

    def record(self, step: Step, notes: Mapping[str, Any] | None) -> None:
        """Write down that `step` is done."""
        files = {}
        for path in self._files(step):
            files[str(path.relative_to(self.folder))] = described = describe(path)
            status = path.stat()
            self._checksums[path, status.st_size, status.st_mtime_ns] = str(described["sha256"])
        self.steps[step.name] = {
            "fingerprint": self._fingerprint(step),
            **({"command": step.command} if step.command else {}),
            "settings": dict(step.settings),
            "tools": tool_versions(step.tools),
            "notes": dict(notes or {}),
            "inputs": {name: self._sha256(path) for name, path in sorted(step.inputs.items())},
            "files": files,
        }

    def _write(self, path: Path) -> None:
        part = path.with_name(f"{path.name}.new")
        told = {**self.header, "sources": self.sources, "steps": self.steps}
        content = json.dumps(told, indent=2, ensure_ascii=False)
        part.write_text(f"{content}\n", encoding="utf-8")
        os.replace(part, path)

    def reopen(self) -> None:
        """Say that the folder is not whole any more: ``manifest.json`` goes until `close`."""
        if (self.folder / NAME).exists():
            os.replace(self.folder / NAME, beside(self.folder / NAME))

    def save(self) -> None:
        """Write down what is done so far, for a run that resumes after a kill."""
        self._write(beside(self.folder / NAME))

    def close(self, order: list[str]) -> None:
        """Write ``manifest.json``: all is whole. Steps that are not in `order` are forgotten.

        Where nothing had to be done it stays as it is, with the command that made the data.
        """
        if (self.folder / NAME).exists() and list(self.steps) == order:
            return
        self.steps = {name: self.steps[name] for name in order}
        self._write(self.folder / NAME)
        remove(beside(self.folder / NAME))


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def load(folder: Path) -> dict[str, Any]:
    """Return the manifest of `folder`, finished or not; empty where none can be read."""
    for path in (folder / NAME, beside(folder / NAME)):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            continue
        if isinstance(content, dict):
            return content
    return {}
