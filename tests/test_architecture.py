"""Imports inside the package point one way, so that no two parts import each other."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator, List, NamedTuple, Set

import capsnmt

PACKAGE = Path(capsnmt.__file__).parent
# From low to high. Parts of one line do not import each other. A module that is named stands above
# the rest of its folder.
LAYERS: List[Set[str]] = [
    {"__init__", "cli", "machine"},
    {"files", "lines", "process", "routing"},
    {"records"},
    {"steps"},
    {"modules", "checkpoints", "evaluation", "pages"},
    {"corpora", "runs"},
    {"translate"},
    {"models"},
    {"sentences"},
    {"criterions", "optim", "tasks"},
    {"host"},
    {"plugin"},
    {"launch", "report", "export"},
    {"analysis"},
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
# fairseq imports these folders of a --user-dir, and each must register everything.
ENTRANCES = {("models", "plugin"), ("tasks", "plugin"), ("__init__", "plugin")}
# these commands run fairseq in their own process
ENTRANCES |= {("translate", "plugin"), ("sentences", "plugin")}


class Import(NamedTuple):
    """One import of a part of the package by another."""

    place: str  # file:line
    importer: str
    imported: str


def part_of(module: str) -> str:
    """The package or top-level module that a module belongs to."""
    return [*module.split("."), "__init__"][1]


def imported_modules(node: ast.AST, package: str) -> Iterator[str]:
    """The absolute names that a statement imports; ``package`` resolves the relative ones."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*(parents if node.level else []), *([node.module] if node.module else [])])
        if base == "capsnmt":
            yield from (f"capsnmt.{alias.name}" for alias in node.names)
        else:
            yield base


def imports() -> List[Import]:
    """Every import between parts, those inside functions included."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE.parent).with_suffix("").parts
        importer = inside[1]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for imported in imported_modules(node, ".".join(inside[:-1])):
                if imported.split(".")[0] == "capsnmt" and part_of(imported) != importer:
                    place = f"{path.relative_to(PACKAGE.parent)}:{node.lineno}"
                    found.append(Import(place, importer, part_of(imported)))
    return found


def test_every_part_has_its_layer() -> None:
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert parts - {"__pycache__"} == set(LEVEL)


def test_imports_point_to_lower_layers() -> None:
    wrong = [
        f"{place}: {importer} must not import {imported}"
        for place, importer, imported in imports()
        if (importer, imported) not in ENTRANCES and LEVEL[imported] >= LEVEL[importer]
    ]
    assert not wrong, "\n".join(wrong)
